// openmpi is the MPI program of the differential test. It makes a list of collective calls with
// MPI, on inputs that every rank computes for itself.
//
//     mpirun -n N openmpi CASES OUTDIR
//
// Each line of CASES is "collective type op count seed", for example "scan int32 sum 10 3". op is
// "none" for a call without a reduction. Each rank writes its results one after the other, as bytes
// in the order of memory, to OUTDIR/RANK. input() in cases_test.go computes the same inputs.

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void fail(const char *what, const char *name) {
	fprintf(stderr, "openmpi: rank %d: %s: %s\n", rank, what, name);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Datatype type_of(const char *name) {
	if (!strcmp(name, "int8")) return MPI_INT8_T;
	if (!strcmp(name, "int32")) return MPI_INT32_T;
	if (!strcmp(name, "int64")) return MPI_INT64_T;
	if (!strcmp(name, "uint8")) return MPI_UINT8_T;
	if (!strcmp(name, "uint32")) return MPI_UINT32_T;
	if (!strcmp(name, "uint64")) return MPI_UINT64_T;
	if (!strcmp(name, "float32")) return MPI_FLOAT;
	if (!strcmp(name, "float64")) return MPI_DOUBLE;
	fail("unknown type", name);
	return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(const char *name) {
	if (!strcmp(name, "none")) return MPI_OP_NULL;
	if (!strcmp(name, "sum")) return MPI_SUM;
	if (!strcmp(name, "prod")) return MPI_PROD;
	if (!strcmp(name, "min")) return MPI_MIN;
	if (!strcmp(name, "max")) return MPI_MAX;
	if (!strcmp(name, "and")) return MPI_LAND;
	if (!strcmp(name, "or")) return MPI_LOR;
	if (!strcmp(name, "xor")) return MPI_LXOR;
	if (!strcmp(name, "bitand")) return MPI_BAND;
	if (!strcmp(name, "bitor")) return MPI_BOR;
	if (!strcmp(name, "bitxor")) return MPI_BXOR;
	fail("unknown op", name);
	return MPI_OP_NULL;
}

// mix is the output function of splitmix64.
static uint64_t mix(uint64_t x) {
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

// input is the integer at an index of this rank's vector: -4 to 4 for products, zero in a third of
// the cases for logical operations, and otherwise of 20 bits.
static int64_t input(const char *op, uint64_t seed, uint64_t index) {
	uint64_t h = mix((seed << 40 | (uint64_t)rank << 32 | index) * 0x9e3779b97f4a7c15u);
	if (!strcmp(op, "prod")) return (int64_t)(h % 9) - 4;
	if (!strcmp(op, "and") || !strcmp(op, "or") || !strcmp(op, "xor")) return (int64_t)(h % 3);
	return (int64_t)(h % (1 << 20)) - (1 << 19);
}

// put stores v as element i of buf in the given type. Integers wrap.
static void put(void *buf, MPI_Datatype type, size_t i, int64_t v) {
	if (type == MPI_INT8_T) ((int8_t *)buf)[i] = (int8_t)v;
	else if (type == MPI_INT32_T) ((int32_t *)buf)[i] = (int32_t)v;
	else if (type == MPI_INT64_T) ((int64_t *)buf)[i] = v;
	else if (type == MPI_UINT8_T) ((uint8_t *)buf)[i] = (uint8_t)v;
	else if (type == MPI_UINT32_T) ((uint32_t *)buf)[i] = (uint32_t)v;
	else if (type == MPI_UINT64_T) ((uint64_t *)buf)[i] = (uint64_t)v;
	else if (type == MPI_FLOAT) ((float *)buf)[i] = (float)v;
	else ((double *)buf)[i] = (double)v;
}

// call carries out one collective; k is the number of elements of a rank's part.
static void call(const char *name, void *dst, const void *src, int k, MPI_Datatype type, MPI_Op op) {
	if (!strcmp(name, "allreduce")) MPI_Allreduce(src, dst, k, type, op, MPI_COMM_WORLD);
	else if (!strcmp(name, "scan")) MPI_Scan(src, dst, k, type, op, MPI_COMM_WORLD);
	else if (!strcmp(name, "reducescatter")) MPI_Reduce_scatter_block(src, dst, k, type, op, MPI_COMM_WORLD);
	else if (!strcmp(name, "allgather")) MPI_Allgather(src, k, type, dst, k, type, MPI_COMM_WORLD);
	else if (!strcmp(name, "alltoall")) MPI_Alltoall(src, k, type, dst, k, type, MPI_COMM_WORLD);
	else fail("unknown collective", name);
}

// run carries out one case and appends its result to out.
static void run(const char *name, const char *type_name, const char *op, int k, uint64_t seed, FILE *out) {
	MPI_Datatype type = type_of(type_name);
	int width;
	MPI_Type_size(type, &width);

	int whole = !strcmp(name, "alltoall");
	size_t in = whole || !strcmp(name, "reducescatter") ? (size_t)k * size : (size_t)k;
	size_t result = whole || !strcmp(name, "allgather") ? (size_t)k * size : (size_t)k;
	void *src = malloc(in * width + 1), *dst = malloc(result * width + 1);
	if (!src || !dst) fail("out of memory", name);

	for (size_t i = 0; i < in; i++) put(src, type, i, input(op, seed, i));
	call(name, dst, src, k, type, op_of(op));
	if (fwrite(dst, width, result, out) != result) fail("cannot write the result", name);
	free(src);
	free(dst);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc != 3) fail("usage", "openmpi CASES OUTDIR");

	char path[4096];
	snprintf(path, sizeof path, "%s/%d", argv[2], rank);
	FILE *cases = fopen(argv[1], "r"), *out = fopen(path, "wb");
	if (!cases) fail("cannot open", argv[1]);
	if (!out) fail("cannot open", path);

	char name[32], type[32], op[32];
	int k;
	unsigned long long seed;
	while (fscanf(cases, "%31s %31s %31s %d %llu", name, type, op, &k, &seed) == 5)
		run(name, type, op, k, seed, out);

	if (fclose(out)) fail("cannot close", path);
	fclose(cases);
	MPI_Finalize();
	return 0;
}
