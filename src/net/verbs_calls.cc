// The libibverbs functions that Weft calls, forwarded to the library of the machine, which the
// first call loads. A program thus runs without the library (and then without RDMA devices), and a
// program built elsewhere finds this system's library, the only one with its drivers.
//
// The macros and inline functions of verbs.h use a device's own table, or end in one of these
// functions. Without the library ibv_get_device_list returns no devices, and no other function is
// called.
#ifdef WEFT_VERBS

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>

#include "base/check.h"

namespace weft::net {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

void* LoadVerbs() {
    static void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    return library;
}

// The newest version of the symbol, or null.
template <typename Function>
Function* FindVerb(const char* name) {
    void* const library = LoadVerbs();
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace
}  // namespace weft::net

extern "C" {

// (Parentheses, because verbs.h has macros with some of these names.)
struct ibv_device**(ibv_get_device_list)(int* count) {
    static auto* const real = weft::net::FindVerb<ibv_device**(int*)>("ibv_get_device_list");
    if (real != nullptr) return real(count);
    if (count != nullptr) *count = 0;
    errno = ENOSYS;
    return nullptr;
}

// Forwards `name`, which the library has, because a device came from it.
#define WEFT_VERB(result, name, parameters, arguments)                           \
    result(name) parameters {                                                    \
        static auto* const real = weft::net::FindVerb<result parameters>(#name); \
        WEFT_CHECK(real != nullptr);                                             \
        return real arguments;                                                   \
    }

WEFT_VERB(void, ibv_free_device_list, (struct ibv_device * *list), (list))
WEFT_VERB(const char*, ibv_get_device_name, (struct ibv_device * device), (device))
WEFT_VERB(struct ibv_context*, ibv_open_device, (struct ibv_device * device), (device))
WEFT_VERB(int, ibv_close_device, (struct ibv_context * context), (context))
WEFT_VERB(int, ibv_query_device, (struct ibv_context * context, struct ibv_device_attr* attributes),
          (context, attributes))
WEFT_VERB(int, ibv_query_port,
          (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr* attributes),
          (context, port, attributes))
WEFT_VERB(int, ibv_query_gid,
          (struct ibv_context * context, uint8_t port, int index, union ibv_gid* gid),
          (context, port, index, gid))
WEFT_VERB(int, ibv_get_async_event, (struct ibv_context * context, struct ibv_async_event* event),
          (context, event))
WEFT_VERB(void, ibv_ack_async_event, (struct ibv_async_event * event), (event))
WEFT_VERB(struct ibv_pd*, ibv_alloc_pd, (struct ibv_context * context), (context))
WEFT_VERB(int, ibv_dealloc_pd, (struct ibv_pd * domain), (domain))
WEFT_VERB(struct ibv_mr*, ibv_reg_mr,
          (struct ibv_pd * domain, void* address, size_t bytes, int access),
          (domain, address, bytes, access))
WEFT_VERB(struct ibv_mr*, ibv_reg_mr_iova2,
          (struct ibv_pd * domain, void* address, size_t bytes, uint64_t iova, unsigned int access),
          (domain, address, bytes, iova, access))
WEFT_VERB(int, ibv_dereg_mr, (struct ibv_mr * region), (region))
WEFT_VERB(struct ibv_cq*, ibv_create_cq,
          (struct ibv_context * context, int entries, void* own, struct ibv_comp_channel* channel,
           int vector),
          (context, entries, own, channel, vector))
WEFT_VERB(int, ibv_destroy_cq, (struct ibv_cq * queue), (queue))
WEFT_VERB(struct ibv_qp*, ibv_create_qp,
          (struct ibv_pd * domain, struct ibv_qp_init_attr* attributes), (domain, attributes))
WEFT_VERB(int, ibv_modify_qp, (struct ibv_qp * pair, struct ibv_qp_attr* attributes, int mask),
          (pair, attributes, mask))
WEFT_VERB(int, ibv_destroy_qp, (struct ibv_qp * pair), (pair))
WEFT_VERB(const char*, ibv_port_state_str, (enum ibv_port_state state), (state))
WEFT_VERB(const char*, ibv_wc_status_str, (enum ibv_wc_status status), (status))

#undef WEFT_VERB

}  // extern "C"

#endif
