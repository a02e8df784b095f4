/* The Open MPI program of make bench-peers: MPI_Allreduce of floats, out of place.
 *
 *     mpicc -O3 openmpi.c -o openmpi && mpirun -n 2 ./openmpi 4:200,67108864:10
 *
 * The argument lists sizes in bytes with the number of timed calls. Rank 0 prints a JSON
 * object for each size, with the names that "elrun bench --json" uses. Inputs, checks and
 * the order of operations are the same as in cmd/elrun/bench, so that the caches have the
 * same state. The program writes every element of both vectors before a call, and reads
 * every element of the result after the call. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PERIOD = 1021, WARMUP = 3 };

struct ranks {
	int rank, size;
};

/* start_of is element 0 of a rank in iteration t. Each next element is 3 larger, modulo PERIOD. */
static int start_of(int rank, long t) { return (int)((7L * rank + 5L * (t % PERIOD)) % PERIOD); }

static void fill(float *v, long count, int rank, long t) {
	int x = start_of(rank, t);
	for (long i = 0; i < count; i++) {
		v[i] = (float)x;
		x += 3;
		if (x >= PERIOD)
			x -= PERIOD;
	}
}

/* count_wrong counts the wrong sums. The correct sums repeat after PERIOD elements. */
static long count_wrong(const float *v, long count, int size, long t) {
	float want[PERIOD];
	for (int i = 0; i < PERIOD; i++) {
		want[i] = 0;
		for (int r = 0; r < size; r++)
			want[i] += (float)((start_of(r, t) + 3 * i) % PERIOD);
	}
	long wrong = 0;
	for (long i = 0, x = 0; i < count; i++) {
		wrong += v[i] != want[x];
		if (++x == PERIOD)
			x = 0;
	}
	return wrong;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* anonymous returns the anonymous resident memory of this process, in bytes. */
static long anonymous(void) {
	char line[256];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "RssAnon: %ld kB", &kb) == 1)
			break;
	fclose(f);
	return kb * 1024;
}

/* single_copy writes the name of Open MPI's mechanism for large messages inside a host. */
static void single_copy(char *text, size_t size) {
	int provided, index, count, value = -1;
	MPI_T_cvar_handle handle;
	snprintf(text, size, "unknown");
	if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
		return;
	if (MPI_T_cvar_get_index("btl_vader_single_copy_mechanism", &index) == MPI_SUCCESS &&
	    MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) == MPI_SUCCESS) {
		MPI_T_cvar_read(handle, &value);
		MPI_T_cvar_handle_free(&handle);
		const char *names[] = {"xpmem", "cma", "knem", "none", "emulated"};
		if (value >= 0 && value < 5)
			snprintf(text, size, "%s", names[value]);
	}
	MPI_T_finalize();
}

/* can_read returns at rank 0 whether rank 0 can read the memory of rank 1, as CMA needs. */
static int can_read(struct ranks me) {
	static int secret;
	long where[2] = {getpid(), (long)&secret};
	int ok = 0;
	secret = 4711;
	if (me.size < 2)
		return 0;
	if (me.rank == 1)
		MPI_Send(where, 2, MPI_LONG, 0, 0, MPI_COMM_WORLD);
	if (me.rank == 0) {
		int got = 0;
		struct iovec local = {&got, sizeof got}, remote;
		MPI_Recv(where, 2, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		remote = (struct iovec){(void *)where[1], sizeof got};
		ok = process_vm_readv((pid_t)where[0], &local, 1, &remote, 1, 0) == sizeof got && got == 4711;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	return ok;
}

static void measure(struct ranks me, long bytes, int iters) {
	long count = bytes / (long)sizeof(float), wrong = 0;
	float *in = malloc(bytes), *out = malloc(bytes);
	double *took = malloc(iters * sizeof *took);
	for (int t = 0; t < WARMUP + iters; t++) {
		for (long i = 0; i < count; i++)
			out[i] = 113;
		fill(in, count, me.rank, t);
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		double end = MPI_Wtime();
		MPI_Barrier(MPI_COMM_WORLD);
		if (t >= WARMUP)
			took[t - WARMUP] = end - begin;
		wrong += count_wrong(out, count, me.size, t);
	}
	/* The time of a call is the time of its slowest rank. */
	MPI_Allreduce(MPI_IN_PLACE, took, iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	long memory = anonymous();
	MPI_Allreduce(MPI_IN_PLACE, &memory, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
	char copy[16];
	single_copy(copy, sizeof copy);
	int readable = can_read(me);
	if (me.rank == 0) {
		qsort(took, iters, sizeof *took, ascending);
		printf("{\"n\":%d,\"bytes\":%ld,\"iters\":%d,\"us_min\":%.3f,\"us_p50\":%.3f,\"wrong\":%ld,\"rss_anon\":%ld,"
		       "\"single_copy\":\"%s\",\"readable\":%s}\n",
		       me.size, bytes, iters, took[0] * 1e6, took[(iters - 1) / 2] * 1e6, wrong, memory, copy, readable ? "true" : "false");
		fflush(stdout);
	}
	free(in);
	free(out);
	free(took);
}

int main(int argc, char **argv) {
	struct ranks me;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &me.size);
	for (char *item = argc > 1 ? strtok(argv[1], ",") : NULL; item; item = strtok(NULL, ",")) {
		long bytes;
		int iters;
		if (sscanf(item, "%ld:%d", &bytes, &iters) != 2 || bytes < 4 || iters < 1) {
			fprintf(stderr, "openmpi: \"%s\": want BYTES:CALLS\n", item);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		measure(me, bytes, iters);
	}
	MPI_Finalize();
	return 0;
}
