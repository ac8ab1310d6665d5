// Runs a model's steps on one rank, without the engine and its libraries: the tokens of a prompt in
// one step, then one token per step, always the most likely one.
//
//     aarch64_steps MODEL.gguf COUNT LOGITS TOKEN...
//
// Prints the kernels that it used and the COUNT tokens that it chose. Writes the float32 file
// LOGITS, with a row for each token that it ran. WEFT_CPU lowers the kernels (hw/cpu.h).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "hw/cpu.h"
#include "model/hyper.h"
#include "model/load.h"
#include "model/model.h"
#include "model_files/gguf.h"

namespace weft {
namespace {

constexpr int kThreads = 2;

class Steps {
  public:
    static Result<Steps> Open(const std::string& path, int64_t tokens) {
        Steps steps;
        WEFT_ASSIGN(model_files::Gguf file, model_files::Gguf::Open(path));
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(file));
        WEFT_ASSIGN(const model::Layout layout, model::MakeLayout(1, 1, 1, {}, 1));
        WEFT_ASSIGN(const model::ShardPlan plan, model::PlanShards(hyper, file, layout));
        backend::CpuOptions options;
        options.threads = kThreads;
        options.level = BestCpuLevel(DetectCpu());
        steps.device_ = backend::MakeCpuDevice(options);
        model::BuildOptions build;
        build.context = tokens;
        build.target = steps.device_->info().target;
        WEFT_ASSIGN(steps.program_, model::BuildProgram(hyper, plan.shards[0], file, build));
        WEFT_TRY(steps.Compile(tokens));
        WEFT_TRY(steps.Load(file));
        return steps;
    }

    // The logits of each of these tokens, the first of which stands at `position`.
    Result<std::vector<float>> Run(std::span<const int32_t> tokens, int64_t position) {
        std::vector<int32_t> positions(tokens.size()), rows(tokens.size());
        std::iota(positions.begin(), positions.end(), static_cast<int32_t>(position));
        std::iota(rows.begin(), rows.end(), 0);
        const std::vector<backend::StepSequence> sequences = {
            {0, static_cast<int32_t>(tokens.size()), static_cast<int32_t>(position), pages_}};
        WEFT_TRY(executable_->Run(executable_->whole(),
                                  {++number_, tokens, positions, sequences, rows}, {}));
        std::vector<float> logits(tokens.size() * vocab());
        WEFT_TRY(executable_->ReadFloats(logits_, 0, logits));
        return logits;
    }
    size_t vocab() const { return static_cast<size_t>(program_.value(logits_).shape[1]); }
    std::string kernels() const { return device_->info().kernels; }

  private:
    Status Compile(int64_t tokens) {
        backend::CompileOptions compile;
        compile.max_tokens = compile.max_outputs = tokens;
        compile.page_tokens = device_->info().target.page_tokens;
        compile.kv_pages = (tokens + compile.page_tokens - 1) / compile.page_tokens;
        logits_ = program_.Find("logits");
        compile.keep = {logits_};
        pages_.resize(static_cast<size_t>(compile.kv_pages));
        std::iota(pages_.rbegin(), pages_.rend(), 0);
        WEFT_ASSIGN(executable_, device_->Compile({program_}, compile));
        return {};
    }
    Status Load(const model_files::Gguf& file) {
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const program::Value& value = program_.values[i];
            if (value.storage != program::Storage::kWeight) continue;
            WEFT_TRY(executable_->LoadWeight(
                static_cast<program::ValueId>(i),
                [&](int64_t row, int64_t count, std::span<std::byte> out) {
                    return model::ReadWeight(file, value, row, count, out, nullptr);
                }));
        }
        return {};
    }

    std::shared_ptr<backend::Device> device_;
    program::Program program_;
    std::unique_ptr<backend::Executable> executable_;
    program::ValueId logits_ = program::kNoValue;
    std::vector<int32_t> pages_;
    int64_t number_ = 0;
};

// The tokens that were chosen.
Result<std::vector<int32_t>> Answer(Steps& steps, std::vector<int32_t> prompt, int64_t count,
                                    std::ofstream& file) {
    std::vector<int32_t> answer;
    int64_t position = 0;
    while (static_cast<int64_t>(answer.size()) < count) {
        WEFT_ASSIGN(const std::vector<float> logits, steps.Run(prompt, position));
        file.write(reinterpret_cast<const char*>(logits.data()),
                   static_cast<std::streamsize>(logits.size() * sizeof(float)));
        position += static_cast<int64_t>(prompt.size());
        const auto last = std::span(logits).last(steps.vocab());
        answer.push_back(static_cast<int32_t>(std::ranges::max_element(last) - last.begin()));
        prompt = {answer.back()};
    }
    return answer;
}

Status Main(const std::string& model, int64_t count, const std::string& path,
            const std::vector<int32_t>& prompt) {
    WEFT_ASSIGN(Steps steps, Steps::Open(model, static_cast<int64_t>(prompt.size()) + count));
    std::ofstream file(path, std::ios::binary);
    WEFT_ASSIGN(const std::vector<int32_t> answer, Answer(steps, prompt, count, file));
    file.close();
    if (!file) return MakeError(ErrorCode::kIo, "cannot write {}", path);
    std::printf("%s\n", steps.kernels().c_str());
    for (const int32_t token : answer) std::printf("%d\n", token);
    return {};
}

}  // namespace
}  // namespace weft

int main(int count, char** words) {
    if (count < 5) {
        std::fprintf(stderr, "Usage: %s MODEL.gguf COUNT LOGITS TOKEN...\n", words[0]);
        return 2;
    }
    std::vector<int32_t> prompt;
    for (int i = 4; i < count; ++i) prompt.push_back(std::atoi(words[i]));
    const weft::Status status = weft::Main(words[1], std::atoi(words[2]), words[3], prompt);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return status.ok() ? 0 : 1;
}
