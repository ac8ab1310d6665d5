// Tests that memory can be registered with an RDMA device, before a link needs it.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace weft::net {

// Registers `bytes` bytes of new memory for remote writes, and releases them. Errors: kUnsupported
// (a build without libibverbs); errors of opening the device and of registering, whose messages
// name the limit on locked memory or the missing permission if that is the cause.
Status TryRegisterMemory(const std::string& device, size_t bytes);

}  // namespace weft::net
