// CUDA's driver interface and HIP match one to one: the functions of both under one name, and what
// differs between them. gpu/cuda and gpu/hip fill in an Interface; the other files of this folder
// implement gpu/device.h over it.
//
// The functions are declared here, since neither driver's headers are needed to build Weft.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "gpu/device.h"
#include "gpu/spirv/translate.h"

namespace weft::gpu::native {

using Code = int;  // CUresult, hipError_t; 0: success
using Handle = void*;
using Address = uint64_t;

// Functions of the driver: X(name, type). One that an interface lacks is null.
#define WEFT_NATIVE_CALLS(X)                                                                     \
    X(Init, Code(unsigned))                                                                      \
    X(GetDriverVersion, Code(int*))                                                              \
    X(GetErrorName, Code(Code, const char**))                                                    \
    X(ErrorName, const char*(Code))                                                              \
    X(GetDeviceCount, Code(int*))                                                                \
    X(GetDevice, Code(int*, int))                                                                \
    X(GetName, Code(char*, int, int))                                                            \
    X(GetAttribute, Code(int*, int, int))                                                        \
    X(GetProperties, Code(void*, int))                                                           \
    X(GetPciBusId, Code(char*, int, int))                                                        \
    X(GetTotalMemory, Code(size_t*, int))                                                        \
    X(RetainContext, Code(Handle*, int))                                                         \
    X(ReleaseContext, Code(int))                                                                 \
    X(SetContext, Code(Handle))                                                                  \
    X(SetDevice, Code(int))                                                                      \
    X(GetMemory, Code(size_t*, size_t*))                                                         \
    X(Allocate, Code(Address*, size_t))                                                          \
    X(AllocateFlagged, Code(Address*, size_t, unsigned))                                         \
    X(Free, Code(Address))                                                                       \
    X(AllocateHost, Code(void**, size_t, unsigned))                                              \
    X(FreeHost, Code(void*))                                                                     \
    X(GetHostAddress, Code(Address*, void*, unsigned))                                           \
    X(GetDeviceByPciBusId, Code(int*, const char*))                                              \
    X(CanAccessPeer, Code(int*, int, int))                                                       \
    X(GetSharedHandle, Code(SharedHandle*, Address))                                             \
    X(OpenSharedHandle, Code(Address*, SharedHandle, unsigned))                                  \
    X(CloseSharedHandle, Code(Address))                                                          \
    X(CreateStream, Code(Handle*, unsigned))                                                     \
    X(DestroyStream, Code(Handle))                                                               \
    X(CreateEvent, Code(Handle*, unsigned))                                                      \
    X(DestroyEvent, Code(Handle))                                                                \
    X(RecordEvent, Code(Handle, Handle))                                                         \
    X(QueryEvent, Code(Handle))                                                                  \
    X(GetElapsed, Code(float*, Handle, Handle))                                                  \
    X(Copy, Code(Address, Address, size_t, Handle))                                              \
    X(CopyOfKind, Code(Address, Address, size_t, int, Handle))                                   \
    X(Fill, Code(Address, unsigned, size_t, Handle))                                             \
    X(LoadModule, Code(Handle*, const void*))                                                    \
    X(UnloadModule, Code(Handle))                                                                \
    X(GetFunction, Code(Handle*, Handle, const char*))                                           \
    X(GetFunctionAttribute, Code(int*, int, Handle))                                             \
    X(Launch, Code(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                   Handle, void**, void**))                                                      \
    X(BeginCapture, Code(Handle, int))                                                           \
    X(EndCapture, Code(Handle, Handle*))                                                         \
    X(Instantiate, Code(Handle*, Handle, unsigned long long))                                    \
    X(DestroyGraph, Code(Handle))                                                                \
    X(LaunchGraph, Code(Handle, Handle))                                                         \
    X(DestroyInstance, Code(Handle))
// Functions of the compiler (nvrtc, hiprtc). One that an interface lacks is null.
#define WEFT_NATIVE_COMPILER_CALLS(X)                                                       \
    X(GetVersion, Code(int*, int*))                                                         \
    X(GetErrorString, const char*(Code))                                                    \
    X(GetArchitectureCount, Code(int*))                                                     \
    X(GetArchitectures, Code(int*))                                                         \
    X(CreateProgram,                                                                        \
      Code(Handle*, const char*, const char*, int, const char* const*, const char* const*)) \
    X(DestroyProgram, Code(Handle*))                                                        \
    X(CompileProgram, Code(Handle, int, const char* const*))                                \
    X(GetLogSize, Code(Handle, size_t*))                                                    \
    X(GetLog, Code(Handle, char*))                                                          \
    X(GetCodeSize, Code(Handle, size_t*))                                                   \
    X(GetCode, Code(Handle, char*))

template <typename T>
using Function = T*;
#define WEFT_NATIVE_POINTER(name, type) Function<type> name = nullptr;
#define WEFT_NATIVE_NAME(name, type) const char* name = nullptr;
struct Calls {
    WEFT_NATIVE_CALLS(WEFT_NATIVE_POINTER)
};
struct CompilerCalls {
    WEFT_NATIVE_COMPILER_CALLS(WEFT_NATIVE_POINTER)
};
// The names of the functions in a library.
struct CallNames {
    WEFT_NATIVE_CALLS(WEFT_NATIVE_NAME)
};
struct CompilerNames {
    WEFT_NATIVE_COMPILER_CALLS(WEFT_NATIVE_NAME)
};
#undef WEFT_NATIVE_POINTER
#undef WEFT_NATIVE_NAME

// A device as the driver lists it: its Description, and the names that the driver and the compiler
// have for it.
struct Found {
    Description description;
    int device = 0;            // the driver's handle
    std::string architecture;  // for the compiler: "sm_90", "gfx90a:sramecc+:xnack-"
};

// Advice to the user about a result of the driver's start.
struct Advice {
    Code code;
    const char* text;
};

struct Interface {
    Api api;
    std::span<const char*const> libraries, compilers;  // tried in this order
    const char* packages;                              // which ones have the libraries
    const char* compiler_packages;
    CallNames names;
    CompilerNames compiler_names;
    unsigned host_flags;  // of host memory that kernels access while the host does
    const char* architecture_option;
    std::span<const char* const> options;  // of the compiler
    const char* roomy_option;              // for kernels that spill registers; null: none
    spirv::Language language;
    uint32_t vendor_id;
    // "12.9", from the driver's number.
    std::string (*version)(int number);
    // Why a compiler makes no code for the device; "": it does. Null: every compiler does.
    std::string (*unfit)(const CompilerCalls& calls, const Found& found);
    std::span<const Advice> advice;
    // Fills in the limits and features of found.device, and the architecture. Errors: of calls.
    Code (*describe)(const Calls& calls, Found& found);
};

// Codes that both interfaces share.
inline constexpr Code kInvalidValueCode = 1, kOutOfMemoryCode = 2, kNoDeviceCode = 100,
                      kInvalidDeviceCode = 101, kNotReadyCode = 600;

// Errors: kUnsupported (no library, with the packages; or a function is missing).
Result<Calls> OpenLibrary(const Interface& interface);
// The first compiler that makes code for the device. Errors: kUnsupported, with the packages.
Result<CompilerCalls> OpenCompiler(const Interface& interface, const Found& found);

Result<std::vector<Description>> ListDevicesOf(const Interface& interface);
Result<std::shared_ptr<Device>> OpenDeviceOf(const Interface& interface, int index,
                                             const OpenOptions& options);

}  // namespace weft::gpu::native
