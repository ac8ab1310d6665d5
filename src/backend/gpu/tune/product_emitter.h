// An Emitter for products without a Program, to measure their kernels.
//
//     ProductEmitter e(device, arithmetic);
//     WEFT_TRY(EmitProduct(e, ...));                 // any number of them
//     WEFT_ASSIGN(auto commands, e.Take());
//     WEFT_ASSIGN(double seconds, e.SecondsOf(*commands));
//
// Thread: one caller for it and its device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device/kernel_cache.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "base/result.h"
#include "gpu/device.h"

namespace weft::backend::on_gpu {

class ProductEmitter final : public Emitter {
  public:
    ProductEmitter(gpu::Device& device, const Arithmetic& arithmetic)
        : device_(device), kernels_(device), arithmetic_(arithmetic) {}
    void set_arithmetic(const Arithmetic& arithmetic) { arithmetic_ = arithmetic; }

    const program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return device_.description(); }
    const StepShape& shape() const override { return shape_; }
    const StepTables& tables() const override { return tables_; }
    bool reference() const override { return false; }
    const Arithmetic& arithmetic() const override { return arithmetic_; }
    uint64_t Address(program::ValueId) const override { return 0; }
    const WeightPlace& Weight(program::ValueId) const override { return weight_; }
    const CachePlace& Cache(program::ValueId) const override { return cache_; }
    bool Exchanges(const program::Op&) const override { return false; }
    uint64_t UpdateScalar(UpdateScalarKind, double) override { return 0; }
    Result<Region> Scratch(std::string_view name, uint64_t bytes) override;
    Result<Region> Constant(const std::string& name, uint64_t bytes,
                            const MakeBytes& make) override;
    Result<const gpu::Kernel*> Kernel(std::string_view shader, std::span<const uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        return kernels_.Get(shader, {constants.begin(), constants.end()}, args_bytes, subgroup);
    }
    void Emit(Dispatch dispatch) override { dispatches_.push_back(std::move(dispatch)); }

    // Device memory whose 32-bit words are all `word`.
    Result<gpu::Buffer> Filled(uint64_t bytes, uint32_t word);
    // Commands for all emitted products, with a barrier after each dispatch.
    Result<std::unique_ptr<gpu::Commands>> Take();
    // Submits the commands and waits. Returns the device's time, or the host's if the device has no
    // timestamps.
    Result<double> SecondsOf(const gpu::Commands& commands);
    gpu::Device& device() { return device_; }

  private:
    gpu::Device& device_;
    KernelCache kernels_;
    Arithmetic arithmetic_;
    program::Program program_;
    StepShape shape_;
    StepTables tables_;
    WeightPlace weight_;
    CachePlace cache_;
    std::map<std::string, gpu::Buffer> scratch_, constants_;
    std::vector<Dispatch> dispatches_;
};

}  // namespace weft::backend::on_gpu
