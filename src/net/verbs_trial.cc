#include "net/verbs_trial.h"

#ifdef WEFT_VERBS
#include "net/verbs_objects.h"
#endif

namespace weft::net {

#ifdef WEFT_VERBS
Status TryRegisterMemory(const std::string& device, size_t bytes) {
    WEFT_ASSIGN(const std::shared_ptr<VerbsDevice> opened, VerbsDevice::Open(device));
    WEFT_ASSIGN(const RegisteredPages pages,
                RegisteredPages::Make(opened->pd(), bytes,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    return {};
}
#else
Status TryRegisterMemory(const std::string& device, [[maybe_unused]] size_t bytes) {
    return MakeError(ErrorCode::kUnsupported, "{}: this weft was built without libibverbs", device);
}
#endif

}  // namespace weft::net
