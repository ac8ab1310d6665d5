// A device that leaves ops to the host's processor (backend/placed/) gives what one device gives.
// Here, both devices are processors.
#include "backend/placed/placed_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/placed/hand_over.h"
#include "backend/placed/stream_border.h"
#include "coll/comm.h"
#include "model_files/hf/folder.h"
#include "support/golden_experts.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

std::shared_ptr<backend::Device> Processor() {
    return backend::MakeCpuDevice({1, {}, true, CpuLevel::kReference});
}

std::shared_ptr<backend::Device> Placed(const program::HostOps& host_ops) {
    return backend::MakePlacedDevice(Processor(), Processor(), host_ops);
}

constexpr program::HostOps kAllExperts{program::HostOps::kAllLayers, 0};

program::Program BuildRank(const model_files::ModelSource& source, const model::Layout& layout,
                           size_t rank = 0) {
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    options.target.float64_reductions = false;  // as GPUs
    const model::Hyper hyper = model::ReadHyper(source).value();
    return Build(hyper, source, layout, options).at(rank);
}

double Distance(std::span<const float> got, std::span<const float> want) {
    double error = 0, size = 0;
    EXPECT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
        error += std::pow(double{got[i]} - double{want[i]}, 2);
        size += std::pow(double{want[i]}, 2);
    }
    return std::sqrt(error / size);
}

std::vector<int32_t> SomeTokens(const program::Program& program) {
    const int64_t vocab = program.value(program.Find("logits")).shape[1];
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < 13; ++i) tokens.push_back(static_cast<int32_t>((7 * i + 3) % vocab));
    return tokens;
}

class PlacedExperts : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        WriteTinyGguf(dir_ / "model.gguf", ExpertGoldenFile(GetParam()));
        source_ = model_files::OpenModel(dir_ / "model.gguf").value();
    }
    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
};

INSTANTIATE_TEST_SUITE_P(All, PlacedExperts, testing::ValuesIn(kExpertCases),
                         [](const auto& test) { return std::string(test.param); });

// Sums of experts on the host are rounded once more than on one device.
constexpr double kRounding = 2e-6;

TEST_P(PlacedExperts, AreNearOneDevice) {
    const program::Program program = BuildRank(*source_, {});
    const std::vector<int32_t> tokens = SomeTokens(program);
    const std::vector<float> want = LoadedRank(Processor(), program, *source_).Logits(tokens, 64);
    LoadedRank placed(Placed(kAllExperts), program, *source_);
    const backend::MemoryUse use = placed.executable().memory();
    EXPECT_EQ(use.host_bytes > 0, program::ExpertLayersEnd(program) > 0);
    for (const size_t piece : {size_t{64}, size_t{5}, size_t{1}}) {
        EXPECT_LE(Distance(placed.Logits(tokens, piece), want), kRounding) << piece;
    }
}

TEST_P(PlacedExperts, OnTensorRanksAreNearOneRank) {
    const program::Program whole = BuildRank(*source_, {});
    const std::vector<int32_t> tokens = SomeTokens(whole);
    const std::vector<float> want = LoadedRank(Processor(), whole, *source_).Logits(tokens, 64);
    const auto layout = model::MakeLayout(2, 2, 1, {}, 0).value();
    std::vector<std::vector<float>> got(2);
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, 10'000).value();
        const auto rank = static_cast<size_t>(fabric.rank);
        LoadedRank placed(Placed(kAllExperts), BuildRank(*source_, layout, rank), *source_);
        got[rank] = placed.Logits(tokens, 5, OneGroup(*comm).groups);
    });
    EXPECT_EQ(got[0], got[1]);
    EXPECT_LE(Distance(got[0], want), 2e-5);
}

// Between the messages of a run are the shared expert's ops, which the device computes while the
// host computes the others.
TEST_P(PlacedExperts, AreComputedBesideTheSharedOnes) {
    const program::Program program = BuildRank(*source_, {});
    const auto placed =
        program::PlaceOps(program, program::ChooseHostOps(program, kAllExperts), {}).value();
    ASSERT_TRUE(program::CheckShapes(placed.device).ok());
    std::vector<size_t> shared(placed.runs.size(), 0);
    for (size_t i = 0, run = 0; i < placed.device.ops.size(); ++i) {
        const program::Op& op = placed.device.ops[i];
        if (program::IsFromHost(op)) ++run;
        if (run == shared.size() || op.outputs.empty()) continue;
        const std::string& name = placed.device.value(op.outputs[0]).name;
        const bool sent = i > 0 && placed.run_of_device[i - 1] == static_cast<int32_t>(run);
        const bool of_shared =
            op.kind() == program::OpKind::kMatMul && name.find("_shexp") != name.npos;
        if (of_shared && (sent || shared[run] > 0)) ++shared[run];
    }
    const std::string name = GetParam();
    const bool has_shared = name == "deepseekV3" || name == "qwen2moe";
    for (const size_t ops : shared) {
        if (has_shared) {
            EXPECT_GE(ops, 3u);
        } else if (name == "mixtral") {
            EXPECT_EQ(ops, 0u);
        }
    }
}

// A processor that refuses weights of more bytes: it has too little memory, or no such buffers.
class SmallDevice final : public backend::Device {
  public:
    explicit SmallDevice(uint64_t bytes, ErrorCode code = ErrorCode::kOutOfMemory)
        : bytes_(bytes), code_(code) {}
    const backend::DeviceInfo& info() const override { return all_->info(); }
    backend::MemoryPool pool() const override { return all_->pool(); }
    Result<std::unique_ptr<backend::Executable>> Compile(
        program::ChunkedProgram program, const backend::CompileOptions& options) override {
        WEFT_ASSIGN(auto compiled, all_->Compile(std::move(program), options));
        const uint64_t bytes = compiled->memory().weight_bytes;
        if (bytes > bytes_) return MakeError(code_, "too large");
        used = bytes;
        return compiled;
    }
    uint64_t used = 0;  // by the weights of the last Executable

    double MeasurePeak(DType) override { return 0; }

  private:
    const std::shared_ptr<backend::Device> all_ = Processor();
    const uint64_t bytes_;
    const ErrorCode code_;
};

// `auto` leaves as few layers' experts to the host as the device demands.
TEST(PlacedToFit, FillsTheDevice) {
    const test::TempDir dir;
    WriteTinyGguf(dir / "model.gguf", ExpertGoldenFile("mixtral"));
    const auto source = model_files::OpenModel(dir / "model.gguf").value();
    const program::Program program = BuildRank(*source, {});
    const int64_t layers = program::ExpertLayersEnd(program);
    ASSERT_GT(layers, 1);
    std::vector<uint64_t> used;  // by the number of layers that leave their experts
    for (int64_t i = 0; i <= layers; ++i) {
        const auto device = std::make_shared<SmallDevice>(UINT64_MAX);
        const auto all = backend::MakePlacedDevice(device, Processor(), {i, 0});
        ASSERT_TRUE(all->Compile({program}, {}).ok());
        EXPECT_TRUE(used.empty() || device->used < used.back());
        used.push_back(device->used);
    }
    constexpr program::HostOps kFill{0, 0, true};
    constexpr ErrorCode kNoRoom = ErrorCode::kOutOfMemory, kNoBuffer = ErrorCode::kUnsupported;
    for (const uint64_t room : used) {
        for (const auto& [more, code] : {std::pair{0, kNoRoom}, {63, kNoRoom}, {0, kNoBuffer}}) {
            const auto device =
                std::make_shared<SmallDevice>(room + static_cast<uint64_t>(more), code);
            const auto placed = backend::MakePlacedDevice(device, Processor(), kFill);
            const auto compiled = placed->Compile({program}, {});
            ASSERT_TRUE(compiled.ok()) << compiled.error().message;
            EXPECT_EQ(device->used, room);
        }
    }
    for (const ErrorCode code : {kNoRoom, kNoBuffer}) {
        auto placed =
            backend::MakePlacedDevice(std::make_shared<SmallDevice>(1, code), Processor(), kFill);
        EXPECT_EQ(placed->Compile({program}, {}).error().code, code);
    }
}

// A rank with the second half of the experts is measured with rows of its own experts, and with
// rows of others.
TEST(StreamBorderTest, MeasuresTheExpertsOfTheRank) {
    const test::TempDir dir;
    WriteTinyGguf(dir / "model.gguf", ExpertGoldenFile("mixtral"));
    const auto source = model_files::OpenModel(dir / "model.gguf").value();
    const program::Program program =
        BuildRank(*source, model::MakeLayout(2, 2, 1, {}, 2).value(), 1);
    const auto placed =
        program::PlaceOps(program, program::ChooseHostOps(program, kAllExperts), {}, true).value();
    backend::CompileOptions options;
    options.max_tokens = 8;
    options.kv_pages = 1;
    const auto processor = Processor();
    const auto device = processor->Compile({placed.device}, options).value();
    const auto host = processor->Compile({placed.host}, options).value();
    for (backend::Executable* const on : {device.get(), host.get()}) {
        int own = 0, others = 0;
        on->SetProbe([&](int32_t number, int64_t rows) -> Status {
            const program::Op& op = on->program().ops[static_cast<size_t>(number)];
            const auto* const product = op.attributes.If<program::ExpertMatMul>();
            if (product == nullptr) return {};
            EXPECT_GT(product->first_expert, 0);
            const int64_t experts = on->program().value(program::WeightOf(op)).shape[0];
            const int64_t used = on->program().value(op.inputs[1]).shape[1];
            std::vector<int32_t> ids(static_cast<size_t>(rows * used));
            WEFT_TRY(on->Read(op.inputs[1], 0, std::as_writable_bytes(std::span(ids))));
            for (const int32_t id : ids) {
                const bool is_own =
                    id >= product->first_expert && id < product->first_expert + experts;
                ++(is_own ? own : others);
            }
            return {};
        });
        ASSERT_TRUE(backend::MeasureStreamBorder(placed, *device, *host, options).ok());
        EXPECT_GT(own, 0);
        EXPECT_GT(others, 0);
        on->SetProbe(nullptr);
    }
}

// If the device omits a run's values, as in a step without output rows, they are not mistaken for
// the next run's values.
TEST(HandOverTest, ValuesThatNobodyTakesAreForgotten) {
    program::PlacedProgram placed;
    placed.run_of_device = {0, 0, 0, 1, 1};
    std::vector<size_t> runs;
    std::vector<std::byte> got(1);
    backend::HandOver hand_over(placed, [&](size_t run, backend::StageLinks& host) -> Status {
        runs.push_back(run);
        WEFT_TRY(host.Recv(got, program::kHostPeer, {}));
        for (int i = 0; i < 2; ++i) {
            const auto value = static_cast<std::byte>(10 * run + static_cast<size_t>(i));
            WEFT_TRY(host.Send({&value, 1}, program::kHostPeer, {}));
        }
        return {};
    });
    for (int step = 0; step < 2; ++step) {
        hand_over.Begin(nullptr);
        backend::StageLinks& device = hand_over.device();
        std::byte value{7};
        ASSERT_TRUE(device.Send({&value, 1}, program::kHostPeer, {.index = 0}).ok());
        ASSERT_TRUE(device.Recv({&value, 1}, program::kHostPeer, {.index = 1}).ok());
        EXPECT_EQ(got[0], std::byte{7});
        EXPECT_EQ(value, std::byte{0});
        ASSERT_TRUE(device.Send({&value, 1}, program::kHostPeer, {.index = 3}).ok());
        ASSERT_TRUE(device.Recv({&value, 1}, program::kHostPeer, {.index = 4}).ok());
        EXPECT_EQ(got[0], std::byte{0});
        EXPECT_EQ(value, std::byte{10});
    }
    EXPECT_EQ(runs, (std::vector<size_t>{0, 1, 0, 1}));
}

class PlacedLayers : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, PlacedLayers, testing::ValuesIn(CasesIn("/families")),
                         [](const auto& test) { return test.param; });

// The processor computes the first layer, or both devices share all of them.
TEST_P(PlacedLayers, HaveTheBitsOfOneDevice) {
    const test::TempDir dir;
    const HfGolden golden(TestData("/families/" + GetParam() + ".safetensors"));
    golden.Write(GetParam(), dir / "model");
    WriteText(dir / "model/tokenizer.json", SmallTokenizer());
    const auto source = model_files::hf::OpenFolder(dir / "model").value();
    const program::Program program = BuildRank(*source, {});
    const std::vector<int32_t> tokens = golden.Tokens(GetParam());
    const std::vector<float> want = LoadedRank(Processor(), program, *source).Logits(tokens, 5);
    const int64_t layers = model::ReadHyper(*source).value().layers;
    for (const int64_t first : {int64_t{1}, layers - 1, layers}) {
        const program::HostOps host_ops{0, first};
        const auto placed =
            program::PlaceOps(program, program::ChooseHostOps(program, host_ops), {});
        if (!placed.ok()) {  // layers with a shared cache
            EXPECT_EQ(placed.error().code, ErrorCode::kUnsupported);
            continue;
        }
        EXPECT_LE(placed->runs.size(), 2u) << first;
        LoadedRank rank(Placed(host_ops), program, *source);
        EXPECT_EQ(rank.Logits(tokens, 5), want) << first << " layers on the host";
    }
}

}  // namespace
}  // namespace weft::support
