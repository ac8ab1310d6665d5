// weft run: a prompt in, an answer streamed out, a summary.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/trace.h"

namespace weft::cli {
namespace {

struct RunFlags {
    CommonFlags common;
    std::string prompt, file;
    bool chat = false;
    engine::GenerateRequest request;
};

Result<std::string> PromptText(const RunFlags& flags) {
    if (flags.prompt.empty() == flags.file.empty()) {
        return MakeError(ErrorCode::kUsage, "give the prompt with -p TEXT or with -f FILE");
    }
    if (!flags.prompt.empty()) return flags.prompt;
    return ReadTextFile(flags.file, 64 << 20);
}

Status Run(RunFlags& flags) {
    WEFT_TRY(Resolve(flags.common));
    WEFT_ASSIGN(const std::string text, PromptText(flags));
    WEFT_TRY(engine::CheckSampler(flags.request.sampler));
    WEFT_ASSIGN(const auto engine, engine::Engine::Start(flags.common.cluster, flags.common.job));
    flags.request.prompt = engine->tokenizer().Encode(text, {.add_special = true});
    WEFT_ASSIGN(const engine::Generation g, engine->Generate(flags.request, [](std::string_view s) {
        std::fwrite(s.data(), 1, s.size(), stdout);
        std::fflush(stdout);
    }));
    fmt::print("\n[prefill {:.1f} tok/s, decode {:.1f} tok/s]\n", g.prefill_tok_s(),
               g.decode_tok_s());
    return {};
}

}  // namespace

void AddRun(CLI::App& app, int& status) {
    auto flags = std::make_shared<RunFlags>();
    CLI::App* run = app.add_subcommand("run", "Answer a prompt");
    AddModel(*run, flags->common);
    run->add_option("-p,--prompt", flags->prompt, "The prompt");
    run->add_option("-f,--file", flags->file, "A file with the prompt");
    run->add_option("-n,--predict", flags->request.max_tokens, "Most tokens to generate");
    run->add_flag("--ignore-eos", flags->request.ignore_eos, "Go on after an end token");
    AddClusterFlags(*run, flags->common);
    AddEngineFlags(*run, flags->common);
    run->callback([flags, &status] {
        if (Status s = Run(*flags); !s.ok()) status = Fail(s.error(), flags->common.json);
    });
}

}  // namespace weft::cli
