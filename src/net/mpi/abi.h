// The border between weft and an MPI library: a table of C functions that a plug-in exports.
//
// weft itself is built without MPI. For each MPI binary interface (Open MPI's, MPICH's) the build
// makes one small shared object from plugin.c, weft_mpi_FLAVOUR.so, which weft loads when a
// launcher of that flavour started it. Nothing of mpi.h crosses this border, and no call blocks
// but init and finalize: what takes time is begun, then tested.
//
// Every function returns an MPI error code, 0 for success; error_text words it. Requests are
// storage of the caller's, opaque, valid from the call that begins them until test says done.
// Thread: one at a time, the one that called init wherever the library gives no more.
//
// A change of anything here raises WEFT_MPI_ABI; weft refuses a plug-in of another number.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MPI_ABI 1u
#define WEFT_MPI_SYMBOL "weft_mpi_api"

typedef struct WeftMpiRequest {
    uint64_t word;  // an MPI_Request, whatever the library's type is
} WeftMpiRequest;

typedef struct WeftMpiApi {
    uint32_t abi;         // WEFT_MPI_ABI
    uint32_t bytes;       // sizeof(WeftMpiApi)
    const char* flavour;  // "openmpi" or "mpich"

    // MPI_Init_thread on the calling thread; errors are returned from here on. Blocks until all
    // ranks have come. library: the library's own name and version, cut to library_bytes.
    int (*init)(int* rank, int* size, char* library, size_t library_bytes);
    // Blocks until all ranks have called it: for a clean end only.
    int (*finalize)(void);
    void (*error_text)(int code, char* text, size_t text_bytes);

    int (*isend)(const void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    int (*irecv)(void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    // done: not 0 once the request is over; then bytes is what was received (sends: undefined),
    // SIZE_MAX where the request was cancelled before anything came.
    int (*test)(WeftMpiRequest* request, int* done, size_t* bytes);
    // Of a receive; it still has to be tested until done.
    int (*cancel)(WeftMpiRequest* request);
    // Collective over all ranks.
    int (*ibcast)(void* data, size_t bytes, int root, WeftMpiRequest* request);
    int (*iallgather)(const void* mine, void* all, size_t bytes_each, WeftMpiRequest* request);
} WeftMpiApi;

// What a plug-in exports under WEFT_MPI_SYMBOL.
typedef const WeftMpiApi* (*WeftMpiEntry)(void);

#ifdef __cplusplus
}
#endif
