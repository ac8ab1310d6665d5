// The choice of the fastest shapes of tiles, and its file.
#include "backend/gpu/tune/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temp_dir.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu {
namespace {

constexpr std::array kDecoding = {Decoding::kPlain};
constexpr std::array kClass = {TileClass::k16};

TuneOptions OptionsIn(const std::string& folder) {
    return {.folder = folder, .size = 64, .classes = kClass};
}
Arithmetic Emulated() {
    return {.matrix = Arithmetic::Matrix::kEmulated};
}

std::string TheFile(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        return entry.path().string();
    }
    return "";
}
std::string TextOf(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

TEST(VulkanTune, MeasuresOnceAndKeepsTheShapes) {
    WEFT_VULKAN(device);
    const weft::test::TempDir temp;
    const std::string folder = temp.path() + "/cache";
    Arithmetic first = Emulated();
    const TuneReport measured = TuneTiles(*device, kDecoding, OptionsIn(folder), first);
    EXPECT_EQ(measured.measured, 1);
    EXPECT_EQ(measured.left, 0);
    const TileShape shape = first.shapes.at(Decoding::kPlain, TileClass::k16);
    const auto candidates =
        TileCandidates(device->description(), TileClass::k16, MatrixUnits::kEmulated);
    EXPECT_TRUE(std::ranges::count(candidates, shape) == 1);

    Arithmetic second = Emulated();
    const TuneReport read = TuneTiles(*device, kDecoding, OptionsIn(folder), second);
    EXPECT_EQ(read.read, 1);
    EXPECT_EQ(read.measured, 0);
    EXPECT_EQ(second.shapes, first.shapes);

    // A start without time left measures nothing; later ones measure the rest. Results are kept.
    TuneOptions late = OptionsIn(folder);
    constexpr std::array kBoth = {TileClass::k16, TileClass::k32};
    late.classes = kBoth;
    late.most_seconds = -1;
    Arithmetic third = Emulated();
    const TuneReport left = TuneTiles(*device, kDecoding, late, third);
    EXPECT_EQ(left.read, 1);
    EXPECT_EQ(left.left, 1);
    EXPECT_EQ(third.shapes, first.shapes);
}

// A class is complete if all of its kernels were compiled in time.
TEST(VulkanTune, LeavesAClassThatLacksKernels) {
    WEFT_VULKAN(device);
    constexpr std::array kNarrow = {TileClass::k32};
    const auto candidates =
        TileCandidates(device->description(), TileClass::k32, MatrixUnits::kEmulated);
    ASSERT_GE(candidates.size(), 2u);
    const weft::test::TempDir temp;
    TuneOptions options = OptionsIn(temp.path());
    options.classes = kNarrow;
    options.compile_seconds = 0;
    for (int again = 0; again < 2; ++again) {
        Arithmetic arithmetic = Emulated();
        const TuneReport cut = TuneTiles(*device, kDecoding, options, arithmetic);
        EXPECT_EQ(cut.read, 0);
        EXPECT_EQ(cut.measured, 0);
        EXPECT_EQ(cut.left, 1);
        EXPECT_EQ(arithmetic.shapes.at(Decoding::kPlain, TileClass::k32), candidates.front());
        EXPECT_EQ(TheFile(temp.path()), "");
    }
    options.compile_seconds = 3600;
    Arithmetic arithmetic = Emulated();
    EXPECT_EQ(TuneTiles(*device, kDecoding, options, arithmetic).measured, 1);
    EXPECT_EQ(TuneTiles(*device, kDecoding, options, arithmetic).read, 1);
}

// Ignores damaged files, other devices' files, and shapes that no kernel supports.
TEST(VulkanTune, IgnoresWhatItDidNotWrite) {
    WEFT_VULKAN(device);
    const weft::test::TempDir temp;
    TuneOptions options = OptionsIn(temp.path());
    Arithmetic arithmetic = Emulated();
    ASSERT_EQ(TuneTiles(*device, kDecoding, options, arithmetic).measured, 1);
    const std::string path = TheFile(temp.path()), good = TextOf(path);
    const auto changed = [&](std::string_view from, std::string_view to) {
        std::string text = good;
        const size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return at == std::string::npos ? text : text.replace(at, from.size(), to);
    };
    options.most_seconds = -1;  // nothing is measured again
    const std::string cases[] = {good.substr(0, good.size() / 2),
                                 "",
                                 "[]",
                                 "{\"format\": 1}",
                                 changed("kernels ", "kernels 1"),
                                 changed("128,", "127,"),
                                 changed("\"16\"", "16")};
    for (const std::string& text : cases) {
        std::ofstream(path, std::ios::trunc) << text;
        Arithmetic got = Emulated();
        const TuneReport report = TuneTiles(*device, kDecoding, options, got);
        EXPECT_EQ(report.read, 0) << text;
        EXPECT_EQ(report.left, 1) << text;
        EXPECT_EQ(got.shapes, TileShapes{}) << text;
    }
    std::ofstream(path, std::ios::trunc) << good;
    EXPECT_EQ(TuneTiles(*device, kDecoding, options, arithmetic).read, 1);
}

// Two models of a process have other kinds of weights. The second one may ignore the file.
TEST(VulkanTune, KeepsOtherKinds) {
    WEFT_VULKAN(device);
    constexpr std::array kBlocks = {Decoding::kBlocks};
    for (const bool again : {false, true}) {
        const weft::test::TempDir temp;
        TuneOptions options = OptionsIn(temp.path());
        options.again = again;
        Arithmetic shared = Emulated();
        ASSERT_EQ(TuneTiles(*device, kDecoding, options, shared).measured, 1);
        const TileShape plain = shared.shapes.at(Decoding::kPlain, TileClass::k16);
        ASSERT_EQ(TuneTiles(*device, kBlocks, options, shared).measured, 1);
        EXPECT_EQ(shared.shapes.at(Decoding::kPlain, TileClass::k16), plain);
        options.again = false;
        Arithmetic later = Emulated();
        EXPECT_EQ(TuneTiles(*device, kDecoding, options, later).read, 1);
        EXPECT_EQ(TuneTiles(*device, kBlocks, options, later).read, 1);
        EXPECT_EQ(later.shapes, shared.shapes);
    }
}

// Another process writes the file between the first look at it and its lock.
TEST(VulkanTune, KeepsWhatOthersWroteBeforeTheLock) {
    WEFT_VULKAN(device);
    constexpr std::array kBlocks = {Decoding::kBlocks};
    constexpr std::array kBoth = {Decoding::kPlain, Decoding::kBlocks};
    const weft::test::TempDir temp;
    Arithmetic other = Emulated(), own = Emulated(), later = Emulated();
    TuneOptions options = OptionsIn(temp.path());
    options.before_lock = [&] {
        EXPECT_EQ(TuneTiles(*device, kDecoding, OptionsIn(temp.path()), other).measured, 1);
    };
    const TuneReport report = TuneTiles(*device, kBoth, options, own);
    EXPECT_EQ(report.read, 1);
    EXPECT_EQ(report.measured, 1);
    EXPECT_EQ(own.shapes.at(Decoding::kPlain, TileClass::k16),
              other.shapes.at(Decoding::kPlain, TileClass::k16));
    options.before_lock = [&] { ADD_FAILURE() << "nothing is left to measure"; };
    EXPECT_EQ(TuneTiles(*device, kBoth, options, later).read, 2);
    EXPECT_EQ(later.shapes, own.shapes);

    // A file that has all kinds already is not measured again, and stays.
    const weft::test::TempDir full;
    Arithmetic late = Emulated();
    options.folder = full.path();
    options.before_lock = [&] {
        EXPECT_EQ(TuneTiles(*device, kBlocks, OptionsIn(full.path()), other).measured, 1);
    };
    const TuneReport read = TuneTiles(*device, kBlocks, options, late);
    EXPECT_EQ(read.read, 1);
    EXPECT_EQ(read.measured, 0);
    EXPECT_EQ(TuneTiles(*device, kBlocks, OptionsIn(full.path()), late).read, 1);
}

// If the file cannot be written, each start would have to measure again.
TEST(VulkanTune, DoesNotMeasureWithoutAFile) {
    WEFT_VULKAN(device);
    const weft::test::TempDir temp;
    std::ofstream(temp.path() + "/file") << "not a folder";
    for (const std::string& folder : {std::string(), temp.path() + "/file"}) {
        Arithmetic arithmetic = Emulated();
        const TuneReport report = TuneTiles(*device, kDecoding, OptionsIn(folder), arithmetic);
        EXPECT_EQ(report.measured, 0);
        EXPECT_EQ(report.left, 1);
        EXPECT_EQ(arithmetic.shapes, TileShapes{});
    }
}

TEST(VulkanTune, SoftwareDevicesAreNotTuned) {
    gpu::Description gpu;
    gpu.kind = gpu::Kind::kCpu;
    TuneOptions options;
    const Arithmetic units{.matrix = Arithmetic::Matrix::kUnits};
    EXPECT_FALSE(WantsTuning(gpu, units, options));
    gpu.kind = gpu::Kind::kDiscrete;
    EXPECT_TRUE(WantsTuning(gpu, units, options));
    EXPECT_FALSE(WantsTuning(gpu, Emulated(), options));
    EXPECT_FALSE(WantsTuning(gpu, Arithmetic{}, options));
    ::setenv("WEFT_VULKAN_TUNE", "off", 1);
    EXPECT_FALSE(WantsTuning(gpu, units, options));
    ::setenv("WEFT_VULKAN_TUNE", "again", 1);
    EXPECT_TRUE(WantsTuning(gpu, units, options));
    EXPECT_TRUE(options.again);
    ::unsetenv("WEFT_VULKAN_TUNE");
}

// All candidates of GPUs fit them, with the subgroups of NVIDIA and of AMD.
TEST(VulkanTune, CandidatesFit) {
    for (const auto& [subgroup, shared] : {std::pair{32, 48}, {64, 64}, {16, 32}}) {
        gpu::Description gpu;
        gpu.subgroup = static_cast<uint32_t>(subgroup);
        gpu.shared_bytes = static_cast<uint32_t>(shared) << 10;
        gpu.most_invocations = 1024;
        gpu.float16 = true;
        ASSERT_TRUE(TakesMatrixTiles(gpu));
        for (const TileClass rows : kTileClasses) {
            const auto candidates = TileCandidates(gpu, rows, MatrixUnits::kOwn);
            EXPECT_GE(candidates.size(), shared >= 48 ? 4u : 1u);
            for (const TileShape& shape : candidates) {
                EXPECT_TRUE(shape.Fits(gpu, MatrixUnits::kOwn));
                const uint32_t across = shape.invocations / gpu.subgroup / shape.Down(gpu.subgroup);
                EXPECT_EQ(shape.rows / 16 % shape.Down(gpu.subgroup), 0u);
                const uint32_t sums = shape.rows / 16 * shape.wide / 16;
                EXPECT_LE(sums, 16 * shape.invocations / gpu.subgroup);  // else RADV uses scratch
                EXPECT_TRUE(across >= shape.wide / 16 || shape.wide / 16 % across == 0);
            }
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
