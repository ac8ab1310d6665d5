// Opens a driver's libraries and looks up their functions.
#include <dlfcn.h>

#include "gpu/native/interface.h"

namespace weft::gpu::native {
namespace {

Result<void*> Open(const char* library) {
    if (void* opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL); opened != nullptr) return opened;
    const char* reason = ::dlerror();
    return MakeError(ErrorCode::kUnsupported, "{}", reason != nullptr ? reason : library);
}

// The error if none of the libraries can be used. An installed version may be broken, so `why` has
// the reason for each.
Error NoneOf(const Interface& interface, const char* first, const std::string& why,
             const char* packages) {
    return MakeError(ErrorCode::kUnsupported, "{}: {} can't be used ({}). {}",
                     ApiTitle(interface.api), first, why, packages);
}

void AddReason(std::string& why, const std::string& reason) {
    why += (why.empty() ? "" : "; ") + reason;
}

Result<void*> OpenFirst(const Interface& interface) {
    std::string why;
    for (const char* library : interface.libraries) {
        const Result<void*> opened = Open(library);
        if (opened.ok()) return *opened;
        AddReason(why, opened.error().message);
    }
    return NoneOf(interface, interface.libraries.front(), why, interface.packages);
}

// Sets `call` to the function `name`. Returns the name if it is missing, else null. A null name
// means a function that the interface lacks.
template <typename T>
const char* Find(void* library, const char* name, T*& call) {
    if (name == nullptr) return nullptr;
    call = reinterpret_cast<T*>(::dlsym(library, name));
    return call == nullptr ? name : nullptr;
}

Error Missing(const char* name) {
    return MakeError(ErrorCode::kUnsupported, "the library has no function {}", name);
}

Result<CompilerCalls> CompilerIn(const Interface& interface, const char* name) {
    WEFT_ASSIGN(void* const library, Open(name));
    CompilerCalls calls;
    const CompilerNames& names = interface.compiler_names;
#define WEFT_NATIVE_FIND_COMPILER(call, type)                                            \
    if (const char* missing = Find(library, names.call, calls.call); missing != nullptr) \
        return Missing(missing);
    WEFT_NATIVE_COMPILER_CALLS(WEFT_NATIVE_FIND_COMPILER)
    return calls;
}

}  // namespace

Result<Calls> OpenLibrary(const Interface& interface) {
    WEFT_ASSIGN(void* const library, OpenFirst(interface));
    Calls calls;
    const CallNames& names = interface.names;
#define WEFT_NATIVE_FIND(call, type)                                                     \
    if (const char* missing = Find(library, names.call, calls.call); missing != nullptr) \
        return NoneOf(interface, interface.libraries.front(), Missing(missing).message,  \
                      interface.packages);
    WEFT_NATIVE_CALLS(WEFT_NATIVE_FIND)
    return calls;
}

Result<CompilerCalls> OpenCompiler(const Interface& interface, const Found& found) {
    std::string why;
    for (const char* name : interface.compilers) {
        const Result<CompilerCalls> calls = CompilerIn(interface, name);
        std::string reason;
        if (!calls.ok()) {
            reason = calls.error().message;
        } else if (interface.unfit != nullptr) {
            reason = interface.unfit(*calls, found);
        }
        if (reason.empty()) return *calls;
        AddReason(why, reason.starts_with(name) ? reason : fmt::format("{}: {}", name, reason));
    }
    return NoneOf(interface, interface.compilers.front(), why, interface.compiler_packages);
}

}  // namespace weft::gpu::native
