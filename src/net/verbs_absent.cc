// Implementation of verbs_end.h in a build without libibverbs.
#ifndef WEFT_VERBS

#include "net/verbs_end.h"

namespace weft::net {

class VerbsDevice {};  // never constructed

bool VerbsBuilt() {
    return false;
}

VerbsDevices::VerbsDevices() = default;
VerbsDevices::~VerbsDevices() = default;

Result<std::unique_ptr<VerbsEnd>> VerbsDevices::MakeEnd(const RdmaPath& path, size_t) {
    return MakeError(ErrorCode::kUnsupported,
                     "this weft was built without RDMA verbs, so it cannot use {}:{}. Install "
                     "libibverbs-dev, configure again and build.",
                     path.device, path.port);
}

std::unique_ptr<BaseLink> MakeVerbsLink(Progress&, PeerName, std::unique_ptr<VerbsEnd>, Fd) {
    return nullptr;  // no end can exist
}

}  // namespace weft::net

#endif
