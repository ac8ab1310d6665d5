// Interface between weft and an MPI library: a table of C functions that a plug-in exports.
//
// weft itself is built without MPI. For each MPI binary interface (Open MPI's and MPICH's), the
// build compiles plugin.c to a small shared object named weft_mpi_FLAVOUR.so. weft loads it if a
// launcher of that MPI flavor started weft. This interface uses no type of mpi.h. Only init and
// finalize block. isend, irecv, ibcast and iallgather only start an operation; test returns whether
// the operation is done.
//
// Every function except error_text returns an MPI error code, 0 for success. error_text describes
// an error code. A request is opaque memory of the caller. This memory must stay valid from the
// call that starts the operation until test reports that the operation is done. Thread: one at a
// time. A thread other than the one that called init may call a function only if the MPI library
// allows it.
//
// Increase WEFT_MPI_ABI with any change in this file; weft rejects a plug-in with another number.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MPI_ABI 1u
#define WEFT_MPI_SYMBOL "weft_mpi_api"

typedef struct WeftMpiRequest {
    uint64_t word;  // an MPI_Request, whose C type depends on the MPI library
} WeftMpiRequest;

typedef struct WeftMpiApi {
    uint32_t abi;         // WEFT_MPI_ABI
    uint32_t bytes;       // sizeof(WeftMpiApi)
    const char* flavour;  // "openmpi" or "mpich"

    // Calls MPI_Init_thread, and makes MPI return later errors instead of ending the process.
    // Blocks until all ranks have started. library: receives the library's name and version, cut to
    // library_bytes.
    int (*init)(int* rank, int* size, char* library, size_t library_bytes);
    // Blocks until all ranks have called finalize, so call it only if no rank has failed.
    int (*finalize)(void);
    void (*error_text)(int code, char* text, size_t text_bytes);

    int (*isend)(const void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    int (*irecv)(void* data, size_t bytes, int peer, int tag, WeftMpiRequest* request);
    // done: not 0 once the request is complete. Then bytes is the number of received bytes
    // (undefined for sends), or SIZE_MAX if the request was canceled before a message arrived.
    int (*test)(WeftMpiRequest* request, int* done, size_t* bytes);
    // Cancels a receive. The caller must still call test until the request is done.
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
