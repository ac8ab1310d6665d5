// The trial of sums through GPU memory is a collective call of a tensor group: all ranks repeat it
// with each new group. (Lavapipe shares no memory, so the sums go through host memory.)
#include "backend/gpu/device/peer_sums.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "model/load.h"
#include "net/local.h"
#include "support/ranks.h"
#include "support/tiny_model.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

constexpr size_t kWindow = size_t{1} << 20;

// After a loss, one rank keeps its Executable and another rank has a new one.
TEST(VulkanPeerSums, AreTriedAgainWithANewRank) {
    WEFT_NEEDS_VULKAN();
    const model::Hyper hyper = support::TinyHyper("qwen3", false);
    const support::TinySource source(hyper);
    model::BuildOptions build;
    build.target.float64_reductions = false;
    model::Layout layout;
    layout.tp = 2;
    const auto programs = support::Build(hyper, source, layout, build);
    const std::array devices = {OpenVulkan(), OpenVulkan()};
    std::array<std::unique_ptr<Executable>, 2> executables;
    const auto compile = [&](size_t rank) {
        const program::Program& program = programs[rank];
        CompileOptions options;
        options.max_tokens = options.max_outputs = 4;
        options.kv_pages = 1;
        options.keep = {program.Find("logits")};
        options.device_sum = DeviceSum::kPeer;
        executables[rank] = devices[rank]->Compile({program}, options).value();
        for (size_t i = 0; i < program.values.size(); ++i) {
            const program::Value& value = program.values[i];
            if (value.storage != program::Storage::kWeight) continue;
            const auto read = [&](int64_t row, int64_t count, std::span<std::byte> out) {
                return model::ReadWeight(source, value, row, count, out, nullptr);
            };
            ASSERT_TRUE(executables[rank]->LoadWeight(static_cast<program::ValueId>(i), read).ok());
        }
    };
    std::array<std::vector<float>, 2> logits;  // by epoch
    for (size_t epoch = 0; epoch < logits.size(); ++epoch) {
        auto fabrics = net::MakeLocalFabrics(2, net::Transport::kTcp, kWindow).value();
        weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const auto comm =
                coll::Comm::Make(fabric, {0, 1}, {0, kWindow, 0, net::kFlags}, 20'000).value();
            const auto rank = static_cast<size_t>(fabric.rank);
            if (epoch == 0 || rank == 1) compile(rank);
            Executable& executable = *executables[rank];
            const std::vector<int32_t> tokens = {3, 1, 2}, rows = {0, 1, 2}, pages = {0};
            const std::vector<StepSequence> sequences = {{0, 3, 0, pages}};
            const Status ran = executable.Run(executable.whole(),
                                              {1, tokens, rows, sequences, rows}, {comm.get()});
            EXPECT_TRUE(ran.ok()) << ran.error().message;
            executable.ForgetGroups();
            if (rank != 0 || !ran.ok()) return;
            logits[epoch].resize(rows.size() * static_cast<size_t>(hyper.vocab));
            EXPECT_TRUE(executable.ReadFloats(programs[0].Find("logits"), 0, logits[epoch]).ok());
        });
    }
    EXPECT_FALSE(logits[0].empty());
    EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace weft::backend::on_gpu
