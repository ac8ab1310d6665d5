// Proves that memory can be registered with an RDMA device, before any link needs it.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace weft::net {

// Registers `bytes` of fresh memory for remote writes and releases it again. Errors: kUnsupported
// (a build without libibverbs), and those of opening the device and registering, which name the
// limit on locked memory and the permission where these are the reason.
Status TryRegisterMemory(const std::string& device, size_t bytes);

}  // namespace weft::net
