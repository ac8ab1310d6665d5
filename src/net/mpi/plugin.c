// Implements weft's calls (abi.h) with MPI. Compiled once per MPI library, by its own mpicc.
#include <mpi.h>
#include <string.h>

#include "abi.h"

#if defined(OPEN_MPI)
#define FLAVOUR "openmpi"
#else
#define FLAVOUR "mpich"
#endif

_Static_assert(sizeof(MPI_Request) <= sizeof(WeftMpiRequest), "an MPI_Request has no room");
// MPI counts messages in int; weft's windows are far smaller, or it sends them in pieces.
static int fits(size_t bytes) {
    return bytes <= 0x7fffffff;
}

static void store(WeftMpiRequest* request, MPI_Request from) {
    memcpy(&request->word, &from, sizeof from);
}

static int init(int* rank, int* size, char* library, size_t library_bytes) {
    int ready = 0;
    int error = MPI_Initialized(&ready);
    if (error == MPI_SUCCESS && !ready) {
        int level;
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    }
    if (error != MPI_SUCCESS) return error;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    if (library_bytes > 0) {
        strncpy(library, version, library_bytes - 1);
        library[library_bytes - 1] = '\0';
    }
    error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return error != MPI_SUCCESS ? error : MPI_Comm_size(MPI_COMM_WORLD, size);
}

static int finalize(void) {
    return MPI_Finalize();
}

static void error_text(int code, char* text, size_t text_bytes) {
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (text_bytes == 0) return;
    if (MPI_Error_string(code, words, &length) != MPI_SUCCESS) strcpy(words, "unknown MPI error");
    strncpy(text, words, text_bytes - 1);
    text[text_bytes - 1] = '\0';
}

static int isend(const void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request) {
    if (!fits(bytes)) return MPI_ERR_COUNT;
    MPI_Request begun = MPI_REQUEST_NULL;
    const int error = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &begun);
    store(request, begun);
    return error;
}

static int irecv(void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request) {
    if (!fits(bytes)) return MPI_ERR_COUNT;
    MPI_Request begun = MPI_REQUEST_NULL;
    const int error = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &begun);
    store(request, begun);
    return error;
}

static int test(WeftMpiRequest* request, int* done, size_t* bytes) {
    MPI_Request tested;
    MPI_Status status;
    memcpy(&tested, &request->word, sizeof tested);
    const int error = MPI_Test(&tested, done, &status);
    if (error != MPI_SUCCESS || !*done) return error;
    store(request, tested);
    if (bytes == NULL) return MPI_SUCCESS;
    int cancelled = 0;
    int count = 0;
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled) MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes = cancelled || count < 0 ? SIZE_MAX : (size_t)count;
    return MPI_SUCCESS;
}

static int cancel(WeftMpiRequest* request) {
    MPI_Request tested;
    memcpy(&tested, &request->word, sizeof tested);
    return tested == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Cancel(&tested);
}

static int ibcast(void* data, size_t bytes, int root, WeftMpiRequest* request) {
    if (!fits(bytes)) return MPI_ERR_COUNT;
    MPI_Request begun = MPI_REQUEST_NULL;
    const int error = MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, &begun);
    store(request, begun);
    return error;
}

static int iallgather(const void* mine, void* all, size_t bytes_each, WeftMpiRequest* request) {
    if (!fits(bytes_each)) return MPI_ERR_COUNT;
    MPI_Request begun = MPI_REQUEST_NULL;
    const int error = MPI_Iallgather(mine, (int)bytes_each, MPI_BYTE, all, (int)bytes_each,
                                     MPI_BYTE, MPI_COMM_WORLD, &begun);
    store(request, begun);
    return error;
}

const WeftMpiApi* weft_mpi_api(void);
__attribute__((visibility("default"))) const WeftMpiApi* weft_mpi_api(void) {
    static const WeftMpiApi api = {WEFT_MPI_ABI, sizeof(WeftMpiApi),
                                   FLAVOUR,      init,
                                   finalize,     error_text,
                                   isend,        irecv,
                                   test,         cancel,
                                   ibcast,       iallgather};
    return &api;
}
