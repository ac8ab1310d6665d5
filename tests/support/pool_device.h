// A device that only answers questions about its memory.
#pragma once

#include <memory>
#include <string>

#include "backend/device.h"

namespace weft::support {

class PoolDevice final : public backend::Device {
  public:
    explicit PoolDevice(backend::MemoryPool pool, const std::string& name = "vulkan:1")
        : pool_(pool) {
        info_.name = name;
    }
    const backend::DeviceInfo& info() const override { return info_; }
    backend::MemoryPool pool() const override { return pool_; }
    Result<std::unique_ptr<backend::Executable>> Compile(program::ChunkedProgram,
                                                         const backend::CompileOptions&) override {
        return MakeError(ErrorCode::kUnsupported, "none");
    }
    double MeasurePeak(DType) override { return 0; }

  private:
    backend::DeviceInfo info_;
    backend::MemoryPool pool_;
};

}  // namespace weft::support
