#include "backend/gpu/tune/product_emitter.h"

#include "base/deadline.h"

namespace weft::backend::on_gpu {
namespace {

constexpr int64_t kWaitMs = 120'000;

}  // namespace

Result<Region> ProductEmitter::Scratch(std::string_view name, uint64_t bytes) {
    gpu::Buffer& buffer = scratch_[std::string(name)];
    if (buffer.size_bytes() < bytes) {
        WEFT_ASSIGN(buffer, device_.Allocate(bytes, gpu::Place::kDevice));
    }
    return Region{buffer.address(), bytes};
}

Result<Region> ProductEmitter::Constant(const std::string& name, uint64_t bytes,
                                        const MakeBytes& make) {
    gpu::Buffer& buffer = constants_[name];
    if (buffer.size_bytes() >= bytes) return Region{buffer.address(), bytes};
    WEFT_ASSIGN(const gpu::Buffer made, device_.Allocate(bytes, gpu::Place::kHost));
    make({made.host(), bytes});
    WEFT_ASSIGN(buffer, device_.Allocate(bytes, gpu::Place::kDevice));
    WEFT_ASSIGN(const auto commands, device_.Record());
    commands->Copy(made, 0, buffer, 0, bytes);
    WEFT_TRY(commands->End());
    WEFT_TRY(SecondsOf(*commands));
    return Region{buffer.address(), bytes};
}

Result<gpu::Buffer> ProductEmitter::Filled(uint64_t bytes, uint32_t word) {
    bytes = (bytes + 255) / 256 * 256;
    WEFT_ASSIGN(gpu::Buffer buffer, device_.Allocate(bytes, gpu::Place::kDevice));
    WEFT_ASSIGN(const auto commands, device_.Record());
    commands->Fill(buffer, 0, bytes, word);
    WEFT_TRY(commands->End());
    WEFT_TRY(SecondsOf(*commands));
    return buffer;
}

Result<std::unique_ptr<gpu::Commands>> ProductEmitter::Take() {
    WEFT_ASSIGN(auto commands, device_.Record());
    commands->Time(0);
    for (const Dispatch& d : dispatches_) {
        commands->Run(*d.kernel, {d.args.data(), d.args_bytes}, d.x, d.y, d.z);
        commands->Barrier();
    }
    commands->Time(1);
    dispatches_.clear();
    ForgetDerived();
    WEFT_TRY(commands->End());
    return commands;
}

Result<double> ProductEmitter::SecondsOf(const gpu::Commands& commands) {
    const int64_t begin_ns = NowNs();
    WEFT_ASSIGN(const uint64_t number, device_.Submit(commands));
    WEFT_TRY(device_.Wait(number, Deadline::In(kWaitMs)));
    const double seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
    const std::vector<int64_t> times = device_.Times(commands, 2);
    return times.size() < 2 ? seconds : static_cast<double>(times[1]) * 1e-9;
}

}  // namespace weft::backend::on_gpu
