// --allreduce-dtype: its words, the choice of auto, and refusals by devices.
#include "engine/rank/sum_wire.h"

#include <gtest/gtest.h>

#include "engine/job.h"

namespace weft::engine {
namespace {

using backend::SumWire;

// A wire with `us` per call and `us_a_byte` per byte.
coll::Tuning Measured(double us, double us_a_byte) {
    coll::Tuning tuning = coll::Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    std::vector<coll::TuningRow> rows;
    for (const size_t bytes : {size_t{256}, size_t{1024}, size_t{8192}, size_t{65536}}) {
        const double all = us + us_a_byte * static_cast<double>(bytes);
        rows.push_back({bytes, {coll::Algorithm::kOneShot, coll::WireType::kFull}, all});
    }
    EXPECT_TRUE(tuning.Set(coll::Collective::kAllReduce, rows).ok());
    return tuning;
}

constexpr double kGigabitUs = 8.5e-3, kTenGigabitUs = 0.85e-3;  // per byte

TEST(SumWire, NamesAreReadBack) {
    for (const std::string& name : SumWireNames()) {
        EXPECT_EQ(SumWireName(ParseSumWire(name).value()), name);
    }
    for (const char* name : {"", "F32", "full", "f16", "q4"}) {
        const auto wire = ParseSumWire(name);
        ASSERT_FALSE(wire.ok());
        EXPECT_EQ(wire.error().code, ErrorCode::kUsage);
        EXPECT_NE(wire.error().message.find("auto, f64, f32, bf16, q8"), std::string::npos);
    }
}

TEST(SumWire, AutoIsF64OnEveryWire) {
    const backend::DeviceInfo cpu;
    for (const double us_a_byte : {100 * kGigabitUs, kGigabitUs, kTenGigabitUs}) {
        for (const double us : {20, 60, 5000}) {
            for (const bool several_hosts : {false, true}) {
                const SumWires wires = AutoSumWires(cpu, several_hosts, Measured(us, us_a_byte));
                EXPECT_EQ(wires.all, SumWire::kF64) << us << " us, " << us_a_byte;
            }
        }
    }
    // No measurement.
    const auto built_in = coll::Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    EXPECT_EQ(AutoSumWires(cpu, true, built_in).all, SumWire::kF64);
}

TEST(SumWire, AChoiceStaysUnlessADeviceMayLackIt) {
    EXPECT_EQ(KeptWire(SumWire::kAuto, SumWire::kAuto, "cpu"), SumWire::kAuto);
    EXPECT_EQ(KeptWire(SumWire::kAuto, SumWire::kF64, "cpu"), SumWire::kF64);
    EXPECT_EQ(KeptWire(SumWire::kAuto, SumWire::kBF16, "auto"), SumWire::kBF16);
    EXPECT_EQ(KeptWire(SumWire::kF32, SumWire::kF32, "auto"), SumWire::kF32);
    // The next epoch may have GPUs, which have no float64 sums: it chooses again.
    EXPECT_EQ(KeptWire(SumWire::kAuto, SumWire::kF64, "auto"), SumWire::kAuto);
    EXPECT_EQ(KeptWire(SumWire::kAuto, SumWire::kF64, "cpu,auto"), SumWire::kAuto);
    // The type that the user requested is kept.
    EXPECT_EQ(KeptWire(SumWire::kF64, SumWire::kF64, "auto"), SumWire::kF64);
}

TEST(PromptWire, AutoIsBf16BetweenHostsOnAWireMeasuredToBeSlow) {
    backend::DeviceInfo cpu, gpu;
    gpu.submits = true;
    gpu.target.float64_reductions = false;
    const coll::Tuning gigabit = Measured(60, kGigabitUs), ten = Measured(20, kTenGigabitUs),
                       hundred = Measured(20, kTenGigabitUs / 10);
    const SumWires exact{SumWire::kF64, SumWire::kF64}, single{SumWire::kF32, SumWire::kF32},
        narrow{SumWire::kF32, SumWire::kBF16}, narrow_prompts{SumWire::kF64, SumWire::kBF16};
    EXPECT_EQ(AutoSumWires(cpu, true, gigabit), narrow_prompts);
    EXPECT_EQ(AutoSumWires(gpu, true, gigabit), narrow);
    // A GPU computes faster.
    EXPECT_EQ(AutoSumWires(cpu, true, ten), exact);
    EXPECT_EQ(AutoSumWires(gpu, true, ten), narrow);
    EXPECT_EQ(AutoSumWires(gpu, true, hundred), single);
    // One host, or no measurement.
    EXPECT_EQ(AutoSumWires(gpu, false, gigabit), single);
    const auto built_in = coll::Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    EXPECT_EQ(AutoSumWires(gpu, true, built_in), single);
    EXPECT_EQ(AutoSumWires(cpu, true, built_in), exact);
}

TEST(PromptWire, ShortPromptsAreNotNarrow) {
    EXPECT_EQ(NarrowTokens(kLeastNarrowPrompt - 1), 0);
    EXPECT_EQ(NarrowTokens(kLeastNarrowPrompt), kLeastNarrowPrompt);
}

TEST(SumWire, ADeviceWithoutFloat64SendsFloat32AtMost) {
    backend::DeviceInfo device;
    device.name = "gpu";
    device.hardware = "a card";
    for (const char* name : {"auto", "f64", "f32", "bf16", "q8"}) {
        EXPECT_TRUE(CheckSumWire(ParseSumWire(name).value(), device).ok());
    }
    device.target.float64_reductions = false;
    for (const SumWire wire : {SumWire::kAuto, SumWire::kF32, SumWire::kBF16, SumWire::kQ8}) {
        EXPECT_TRUE(CheckSumWire(wire, device).ok());
    }
    const Status refused = CheckSumWire(SumWire::kF64, device);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    for (const char* said :
         {"--allreduce-dtype f64", "gpu (a card)", "float32", "--allreduce-dtype auto or f32"}) {
        EXPECT_NE(refused.error().message.find(said), std::string::npos) << said;
    }
    EXPECT_EQ(AutoSumWires(device, false, Measured(1, 0)).all, SumWire::kF32);
    const Status prompts = CheckSumWire(SumWire::kF64, device, "--prompt-allreduce-dtype");
    ASSERT_FALSE(prompts.ok());
    EXPECT_NE(prompts.error().message.find("--prompt-allreduce-dtype f64:"), std::string::npos);
}

TEST(DeviceSum, NamesAreReadBackAndTravelWithTheJob) {
    for (const char* name : {"auto", "split", "spin"}) {
        const auto sum = ParseDeviceSum(name);
        ASSERT_TRUE(sum.ok()) << name;
        Job job;
        job.device_sum = *sum;
        const auto back = JobFromJson(JobToJson(job));
        ASSERT_TRUE(back.ok()) << back.error().message;
        EXPECT_EQ(back->device_sum, *sum);
        EXPECT_NE(JobToJson(job).find(std::string("\"") + name + "\""), std::string::npos);
    }
    for (const char* name : {"", "Spin", "polls", "splits"}) {
        const auto sum = ParseDeviceSum(name);
        ASSERT_FALSE(sum.ok()) << name;
        EXPECT_EQ(sum.error().code, ErrorCode::kUsage);
        EXPECT_NE(sum.error().message.find("auto, split"), std::string::npos);
    }
}

TEST(DeviceSum, ADeviceThatSubmitsNothingCannotSpin) {
    backend::DeviceInfo device;
    device.name = "cpu";
    device.hardware = "a processor";
    for (const char* name : {"auto", "split"}) {
        EXPECT_TRUE(CheckDeviceSum(ParseDeviceSum(name).value(), device).ok()) << name;
    }
    const Status refused = CheckDeviceSum(backend::DeviceSum::kSpin, device);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    for (const char* said : {"cpu (a processor)", "runs no submissions", "--gpu-allreduce auto"}) {
        EXPECT_NE(refused.error().message.find(said), std::string::npos) << said;
    }
    device.submits = true;
    EXPECT_TRUE(CheckDeviceSum(backend::DeviceSum::kSpin, device).ok());
}

TEST(SumWire, TravelsWithTheJob) {
    for (const std::string& name : SumWireNames()) {
        Job job;
        job.wire = ParseSumWire(name).value();
        job.prompt_wire = SumWire::kQ8;
        const auto back = JobFromJson(JobToJson(job));
        ASSERT_TRUE(back.ok());
        EXPECT_EQ(back->wire, job.wire);
        EXPECT_EQ(back->prompt_wire, SumWire::kQ8);
    }
    std::string text = JobToJson(Job());
    const std::string before = "\"wire\":\"auto\"";
    ASSERT_NE(text.find(before), std::string::npos);
    text.replace(text.find(before), before.size(), "\"wire\":\"q4\"");
    EXPECT_EQ(JobFromJson(text).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace weft::engine
