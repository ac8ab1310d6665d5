// Interface between weft and an MPI library: a table of C functions that a plug-in exports.
//
// weft itself is built without MPI. For each MPI binary interface (Open MPI's, MPICH's) the build
// makes a small shared object from plugin.c, weft_mpi_FLAVOUR.so, which weft loads when a launcher
// of that flavor started it. No type of mpi.h crosses this interface. Only init and finalize block;
// other operations are started, then tested.
//
// Every function returns an MPI error code, 0 for success; error_text describes it. A request is
// opaque storage of the caller, valid from the call that starts it until test reports done. Thread:
// one at a time; the one that called init, unless the library allows others.
//
// Any change here raises WEFT_MPI_ABI; weft rejects a plug-in with another number.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MPI_ABI 1u
#define WEFT_MPI_SYMBOL "weft_mpi_api"

typedef struct WeftMpiRequest {
    uint64_t word;  // an MPI_Request, of any type
} WeftMpiRequest;

typedef struct WeftMpiApi {
    uint32_t abi;         // WEFT_MPI_ABI
    uint32_t bytes;       // sizeof(WeftMpiApi)
    const char* flavour;  // "openmpi" or "mpich"

    // MPI_Init_thread on the calling thread; later errors are returned. Blocks until all ranks have
    // started. library: receives its name and version, cut to library_bytes.
    int (*init)(int* rank, int* size, char* library, size_t library_bytes);
    // Blocks until all ranks have called it; use it only for a clean end.
    int (*finalize)(void);
    void (*error_text)(int code, char* text, size_t text_bytes);

    int (*isend)(const void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    int (*irecv)(void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    // done: not 0 once the request is complete; bytes is then the received size (undefined for
    // sends), or SIZE_MAX if the request was canceled before a message arrived.
    int (*test)(WeftMpiRequest* request, int* done, size_t* bytes);
    // Cancels a receive; it must still be tested until done.
    int (*cancel)(WeftMpiRequest* request);
    // Collective over all ranks.
    int (*ibcast)(void* data, size_t bytes, int root, WeftMpiRequest* request);
    int (*iallgather)(const void* mine, void* all, size_t bytes_each, WeftMpiRequest* request);
} WeftMpiApi;

// The symbol WEFT_MPI_SYMBOL of a plug-in.
typedef const WeftMpiApi* (*WeftMpiEntry)(void);

#ifdef __cplusplus
}
#endif
