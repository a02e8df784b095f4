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

// input is the integer at an index of this rank's vector: -4 to 4 for products and places, zero in a third of
// the cases for logical operations, and otherwise of 20 bits.
static int64_t input(const char *op, uint64_t seed, uint64_t index) {
	uint64_t h = mix((seed << 40 | (uint64_t)rank << 32 | index) * 0x9e3779b97f4a7c15u);
	if (!strcmp(op, "prod") || strstr(op, "loc")) return (int64_t)(h % 9) - 4;
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

// part is the number of elements of the part that rank from has for rank to, at most k.
static int part(int k, uint64_t seed, int from, int to) {
	return (int)((seed + 3 * (uint64_t)from + 5 * (uint64_t)to) % ((uint64_t)k + 1));
}

// parts fills counts and displacements for the parts that this rank sends to, or receives from, all
// ranks, and returns their total.
static int parts(int k, uint64_t seed, int sends, int *counts, int *displs) {
	int total = 0;
	for (int r = 0; r < size; r++) {
		counts[r] = sends ? part(k, seed, rank, r) : part(k, seed, r, rank);
		displs[r] = total;
		total += counts[r];
	}
	return total;
}

// gather_any sends this rank's part to rank 0, which receives the parts of all other ranks as they
// come, by MPI_Probe or by MPI_Waitany, and stores them in the order of ranks. The
// tag is that of the case, so that a probe does not find a message of the next case.
static void gather_any(int by_probe, int tag, char *dst, const void *src, int n, const int *counts, const int *displs, MPI_Datatype type, int width) {
	if (rank) {
		MPI_Send(src, n, type, 0, tag, MPI_COMM_WORLD);
		return;
	}
	memcpy(dst, src, (size_t)n * width);
	MPI_Request requests[64];
	MPI_Status status;
	for (int r = 1; r < size && !by_probe; r++)
		MPI_Irecv(dst + (size_t)displs[r] * width, counts[r], type, r, tag, MPI_COMM_WORLD, &requests[r - 1]);
	for (int i = 1; i < size; i++) {
		int index, got;
		if (by_probe) {
			MPI_Probe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, type, &got);
			int from = status.MPI_SOURCE;
			if (got != counts[from]) fail("wrong count of", "probe");
			MPI_Recv(dst + (size_t)displs[from] * width, got, type, from, tag, MPI_COMM_WORLD, &status);
		} else {
			MPI_Waitany(size - 1, requests, &index, &status);
		}
	}
}

// shift sends src to the next rank and receives dst from the rank before, in a ring of all ranks, or
// for every dimension of a grid that is periodic in its first dimension only.
static void shift(int grid, char *dst, const void *src, int k, MPI_Datatype type, int width) {
	if (!grid) {
		MPI_Sendrecv(src, k, type, (rank + 1) % size, 7, dst, k, type, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		return;
	}
	int dims[2] = {0, 0}, periodic[2] = {1, 0};
	MPI_Comm cart;
	MPI_Dims_create(size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periodic, 0, &cart);
	for (int i = 0; i < 4; i++) {
		int from, to;
		MPI_Cart_shift(cart, i / 2, i % 2 ? -1 : 1, &from, &to);
		MPI_Sendrecv(src, k, type, to, i, dst + (size_t)i * k * width, k, type, from, i, cart, MPI_STATUS_IGNORE);
	}
	MPI_Comm_free(&cart);
}

// run_parts carries out one case whose parts have different lengths, or which exchanges messages.
// It returns 0 if the name is of another case.
static int run_parts(const char *name, const char *type_name, const char *op, int k, uint64_t seed, FILE *out) {
	MPI_Datatype type = type_of(type_name);
	int width, send_counts[64], send_displs[64], recv_counts[64], recv_displs[64];
	MPI_Type_size(type, &width);
	size_t sent = parts(k, seed, 1, send_counts, send_displs), result = parts(k, seed, 0, recv_counts, recv_displs);
	int a2a = !strcmp(name, "alltoallv"), scatter = !strcmp(name, "reducescatterv"), ring = !strcmp(name, "sendrecv"), grid = !strcmp(name, "grid");
	int probe = !strcmp(name, "probe"), any = probe || !strcmp(name, "waitany");
	if (scatter) { // the counts are those of rank 0 at every rank
		sent = 0;
		for (int r = 0; r < size; r++) sent += send_counts[r] = part(k, seed, 0, r);
		result = send_counts[rank];
	} else if (any) {
		sent = part(k, seed, rank, 0);
		result = rank ? 0 : result;
	} else if (ring || grid) {
		sent = k;
		result = grid ? 4 * (size_t)k : (size_t)k;
	} else if (!a2a) {
		return 0;
	}
	void *src = malloc(sent * width + 1);
	char *dst = calloc(result * width + 1, 1);
	if (!src || !dst) fail("out of memory", name);

	for (size_t i = 0; i < sent; i++) put(src, type, i, input(op, seed, i));
	if (a2a) MPI_Alltoallv(src, send_counts, send_displs, type, dst, recv_counts, recv_displs, type, MPI_COMM_WORLD);
	else if (scatter) MPI_Reduce_scatter(src, dst, send_counts, type, op_of(op), MPI_COMM_WORLD);
	else if (any) gather_any(probe, (int)seed, dst, src, (int)sent, recv_counts, recv_displs, type, width);
	else shift(grid, dst, src, k, type, width);
	if (fwrite(dst, width, result, out) != result) fail("cannot write the result", name);
	free(src);
	free(dst);
	return 1;
}

// PAIRS reduces k pairs of a value and a place, which have these C types. elrun has both in one
// type, so the result is written as pairs of T.
#define PAIRS(T, mpi_type) do { \
	struct { T value; int place; } *v = calloc(k + 1, sizeof *v), *w = calloc(k + 1, sizeof *w); \
	for (int i = 0; i < k; i++) { v[i].value = (T)input(op, seed, i); v[i].place = (rank + i) % size; } \
	MPI_Allreduce(v, w, k, mpi_type, strcmp(op, "minloc") ? MPI_MAXLOC : MPI_MINLOC, MPI_COMM_WORLD); \
	for (int i = 0; i < k; i++) { \
		T pair[2] = {w[i].value, (T)w[i].place}; \
		if (fwrite(pair, sizeof *pair, 2, out) != 2) fail("cannot write the result", op); \
	} \
	free(v); \
	free(w); \
} while (0)

// run_loc carries out one case of MINLOC or MAXLOC. MPI has them for these types.
static void run_loc(const char *type, const char *op, int k, uint64_t seed, FILE *out) {
	if (!strcmp(type, "int32")) PAIRS(int, MPI_2INT);
	else if (!strcmp(type, "int64")) PAIRS(long, MPI_LONG_INT);
	else if (!strcmp(type, "float32")) PAIRS(float, MPI_FLOAT_INT);
	else if (!strcmp(type, "float64")) PAIRS(double, MPI_DOUBLE_INT);
	else fail("no pairs of type", type);
}

// run carries out one case and appends its result to out.
static void run(const char *name, const char *type_name, const char *op, int k, uint64_t seed, FILE *out) {
	if (!strcmp(name, "loc")) {
		run_loc(type_name, op, k, seed, out);
		return;
	}
	if (run_parts(name, type_name, op, k, seed, out)) return;

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
