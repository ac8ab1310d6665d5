// Opens a driver's libraries and looks up their functions.
#include <dlfcn.h>

#include "gpu/native/interface.h"

namespace weft::gpu::native {
namespace {

Result<void*> OpenFirst(const Interface& interface, std::span<const char* const> libraries,
                        const char* packages) {
    std::string why;  // an installed version may be broken, so each one's reason counts
    for (const char* library : libraries) {
        if (void* opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL); opened != nullptr)
            return opened;
        const char* reason = ::dlerror();
        why += (why.empty() ? "" : "; ") + std::string(reason != nullptr ? reason : library);
    }
    return MakeError(ErrorCode::kUnsupported, "{}: {} can't be opened ({}). {}",
                     ApiTitle(interface.api), libraries.front(), why, packages);
}

// Sets `call` to the function `name`. Returns the name if it is missing, else null. A null name
// stands for a function that the interface lacks.
template <typename T>
const char* Find(void* library, const char* name, T*& call) {
    if (name == nullptr) return nullptr;
    call = reinterpret_cast<T*>(::dlsym(library, name));
    return call == nullptr ? name : nullptr;
}

Error Missing(const Interface& interface, const char* name, const char* packages) {
    return MakeError(ErrorCode::kUnsupported, "{}: the library has no function {}. {}",
                     ApiTitle(interface.api), name, packages);
}

}  // namespace

Result<Calls> OpenLibrary(const Interface& interface) {
    WEFT_ASSIGN(void* const library, OpenFirst(interface, interface.libraries, interface.packages));
    Calls calls;
    const CallNames& names = interface.names;
#define WEFT_NATIVE_FIND(call, type)                                                     \
    if (const char* missing = Find(library, names.call, calls.call); missing != nullptr) \
        return Missing(interface, missing, interface.packages);
    WEFT_NATIVE_CALLS(WEFT_NATIVE_FIND)
    return calls;
}

Result<CompilerCalls> OpenCompiler(const Interface& interface) {
    WEFT_ASSIGN(void* const library,
                OpenFirst(interface, interface.compilers, interface.compiler_packages));
    CompilerCalls calls;
    const CompilerNames& names = interface.compiler_names;
#define WEFT_NATIVE_FIND_COMPILER(call, type)                                            \
    if (const char* missing = Find(library, names.call, calls.call); missing != nullptr) \
        return Missing(interface, missing, interface.compiler_packages);
    WEFT_NATIVE_COMPILER_CALLS(WEFT_NATIVE_FIND_COMPILER)
    return calls;
}

}  // namespace weft::gpu::native
