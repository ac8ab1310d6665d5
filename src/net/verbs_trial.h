// Tests that memory can be registered with an RDMA device, before a link needs it.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace weft::net {

// Registers `bytes` of new memory for remote writes, and releases it. Errors: kUnsupported (a build
// without libibverbs), and those of opening and registering, which name the limit on locked memory
// or the permission if that is the cause.
Status TryRegisterMemory(const std::string& device, size_t bytes);

}  // namespace weft::net
