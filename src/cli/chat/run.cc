// weft run: answers a prompt, streams the answer, and prints a summary.
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/bench/summary.h"
#include "cli/chat/answer_text.h"
#include "cli/chat/chat_model.h"
#include "cli/chat/run_chat.h"
#include "cli/command_line/sampling_flags.h"
#include "cli/commands.h"
#include "cli/models/model_words.h"
#include "cli/terminal/loading_line.h"
#include "cli/terminal/output.h"
#include "engine/engine.h"

namespace weft::cli {
namespace {

constexpr const char* kRunFooter =
    "If the model has a chat template, the prompt becomes a user's message; --raw completes the\n"
    "prompt as it is. The answer goes to standard output, the summary to standard error.\n\n"
    "Without a prompt at a terminal, a conversation starts (/help lists its commands).\n\n"
    "Examples:\n"
    "  weft run model.gguf\n"
    "  weft run model.gguf \"Name three colours.\"\n"
    "  git diff | weft run model.gguf --system \"Say what changed.\"\n"
    "  weft run model.gguf -p \"Name three colours.\" -n 32\n"
    "  weft run model.gguf --raw -p \"Once upon a time\"\n"
    "  weft run model.gguf -f prompt.txt --temp 0.6 --top-p 0.9 --seed 7\n"
    "  weft run model.gguf -p \"Hello\" --greedy --local 2 -t 1 --json\n"
    "  weft run model.gguf -f article.txt --prompt-lookup\n"
    "  weft run big.gguf -p \"Hello\" --draft small.gguf --tp 2\n"
    "  weft run model.gguf -p \"Hello\" --hosts b:7000,c:7000 --key-file weft.key";

struct RunFlags {
    CommonFlags common;
    std::string prompt, file, system, template_kwargs;
    std::vector<std::string> words{};  // the prompt after MODEL
    bool chat = false, raw = false;
    chat::OrderedJson variables = chat::OrderedJson::object();  // template_kwargs, parsed
    engine::Request request;
    SamplingFlags sampling;
    std::string sampling_by{};  // source of the sampling values
    engine::DraftOptions draft;
    Command run;  // the command line

    bool has_seed() const { return run.Given("--seed"); }
};

constexpr int64_t kUsualTokens = 128, kMostPromptBytes = 64 << 20;

// No prompt is given, and standard input is a terminal.
bool IsConversation(const RunFlags& flags) {
    const bool given = flags.run.Given("--prompt") || flags.run.Given("--file") ||
                       !flags.words.empty() || flags.raw || flags.common.json;
    return !given && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
}

// Whether a file or pipe at `fd` has unread bytes.
bool HasBytesWaiting(int fd) {
    int bytes = 0;
    return ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

// Checks that exactly one of the flag, the file and standard input gives the prompt.
Result<std::string> PromptText(const RunFlags& flags) {
    const bool words = !flags.words.empty(), file = flags.run.Given("--file");
    const bool prompt = flags.run.Given("--prompt") || words;
    if (words && flags.run.Given("--prompt")) {
        return MakeError(ErrorCode::kUsage, "-p TEXT and '{}' are both prompts: use one of them",
                         flags.words[0]);
    }
    if (prompt && file) {
        return MakeError(ErrorCode::kUsage, "{} and -f FILE are both prompts: use one of them",
                         words ? "'" + flags.words[0] + "'" : "-p TEXT");
    }
    if (!prompt && !file && ::isatty(STDIN_FILENO) == 1) {
        return MakeError(ErrorCode::kUsage,
                         "the prompt is missing: write it after MODEL, or use -p TEXT, -f FILE or "
                         "standard input");
    }
    if (words && HasBytesWaiting(STDIN_FILENO)) {
        Log(LogLevel::kWarning,
            "Weft does not read standard input, because a prompt follows MODEL. A shell passes "
            "both with \"{} $(cat)\"",
            flags.words[0]);
    }
    const std::string path = file ? flags.file : "-";
    std::string text = words ? fmt::format("{}", fmt::join(flags.words, " ")) : flags.prompt;
    if (!prompt) {
        WEFT_ASSIGN(text, ReadTextStream(path, kMostPromptBytes));
    }
    if (text.find_first_not_of(" \t\r\n") == text.npos) {
        return MakeError(ErrorCode::kUsage,
                         "{} is empty: write the prompt there, or use -p TEXT, -f FILE or standard "
                         "input",
                         words         ? "the text after MODEL"
                         : prompt      ? "the text of -p"
                         : path == "-" ? "standard input"
                                       : path);
    }
    // The final newline of a file is not part of the prompt.
    if (!prompt && text.ends_with('\n')) text.pop_back();
    return text;
}

Status CheckForm(const RunFlags& flags) {
    if (!flags.raw) return {};
    const char* other = flags.chat                       ? "--chat"
                        : !flags.system.empty()          ? "--system"
                        : !flags.template_kwargs.empty() ? "--chat-template-kwargs"
                                                         : nullptr;
    if (other == nullptr) return {};
    return MakeError(ErrorCode::kUsage,
                     "--raw uses the prompt as it is, {} its chat form: use one of them", other);
}

// Whether the prompt is a chat message: requested, or the model has a template.
Result<bool> IsChat(const RunFlags& flags, const model_files::Metadata& meta) {
    if (flags.raw) return false;
    if (flags.chat || !flags.system.empty() || !flags.variables.empty()) return true;
    WEFT_ASSIGN(const std::string own, meta.StringOr("tokenizer.chat_template", ""));
    return !own.empty();
}

Result<ChatPrompt> MakePrompt(const RunFlags& flags, const ModelWords& words) {
    WEFT_ASSIGN(const std::string text, PromptText(flags));
    WEFT_ASSIGN(const bool is_chat, IsChat(flags, words.source->meta()));
    if (!is_chat) return ChatPrompt{words.tokenizer->Encode(text, {.parse_special = true})};
    WEFT_ASSIGN(const ChatModel model, ChatModel::Load(words, flags.variables));
    return model.MakePrompt(chat::OneQuestion(flags.system, text));
}

// Generates the answer and streams it; `text` receives the shown text, also after an error.
Result<engine::Generation> Answer(engine::Engine& engine, engine::Request request,
                                  const ChatPrompt& prompt, bool json, std::string& text) {
    AnswerText answer(prompt, request, engine.tokenizer());
    ProgressLine line;
    const auto show = [&](const std::string& more) {
        line.Clear();
        if (!json) StreamToken(ForTerminal(more));
        text += more;
    };
    WEFT_ASSIGN(engine::Generation generation,
                engine.Generate(
                    std::move(request),
                    [&](std::string_view said, int32_t token) {
                        show(answer.Push(said, token));
                        return !answer.stopped();
                    },
                    [&](const engine::PromptProgress& p) { ShowProgress(p, line); }));
    show(answer.Finish());
    if (answer.stopped()) generation.finish = "stop";
    return generation;
}

struct Outcome {
    engine::Generation generation;
    std::string text;  // the answer as shown
    std::vector<engine::RankReport> reports;
    bool drafts = false;    // --prompt-lookup or --draft was given
    bool recovers = false;  // --restart-timeout-ms or --elastic was given
    std::vector<engine::Recovery> recoveries;
    AllReduceCost all_reduce;
    double load_s = 0;
    std::string transport;
    std::string sampling;  // as text
    uint64_t seed = 0;
};

Json RunJson(const std::vector<engine::Recovery>& recoveries) {
    Json list = Json::array();
    for (const engine::Recovery& r : recoveries) {
        list.push_back({{"lost_ranks", r.lost},
                        {"epoch", r.epoch},
                        {"ranks", r.ranks},
                        {"seconds", r.seconds},
                        {"text", r.text}});
    }
    return list;
}

Json DraftsToJson(const engine::Generation& g) {
    return {{"drafted", g.drafted},
            {"accepted", g.accepted},
            {"acceptance", g.acceptance()},
            {"steps", g.steps},
            {"tokens_per_step", g.tokens_per_step()}};
}

std::string DraftsText(const engine::Generation& g) {
    return fmt::format(
        "drafts: {} of {} tokens accepted ({:.0f} %), {:.2f} tokens a step in {} steps\n",
        g.accepted, g.drafted, 100 * g.acceptance(), g.tokens_per_step(), g.steps);
}

void PrintOutcome(const Outcome& outcome, bool json) {
    const engine::Generation& g = outcome.generation;
    if (json) {
        Json result{{"text", outcome.text},
                    {"tokens", g.tokens},
                    {"prompt_tokens", g.prompt_tokens},
                    {"prefill_tok_s", g.prefill_tok_s()},
                    {"decode_tok_s", g.decode_tok_s()},
                    {"load_s", outcome.load_s},
                    {"sampling", outcome.sampling},
                    {"seed", outcome.seed},
                    {"ranks", RanksToJson(outcome.reports)},
                    {"all_reduce", ToJson(outcome.all_reduce)}};
        if (outcome.drafts) result["speculation"] = DraftsToJson(g);
        if (outcome.recovers) result["recoveries"] = RunJson(outcome.recoveries);
        PrintJson(result);
        return;
    }
    Stream("\n");
    PrintErr(
        "\nprefill: {} tokens, {:.1f} tok/s\ndecode: {} tokens ({}), {:.1f} tok/s\n"
        "{}sampling: {}\nload: {:.2f} s\n{}",
        g.prompt_tokens, g.prefill_tok_s(), g.tokens.size(), g.finish, g.decode_tok_s(),
        outcome.drafts ? DraftsText(g) : "", outcome.sampling, outcome.load_s,
        RanksText(outcome.reports, outcome.all_reduce, outcome.transport));
}

// The defaults, overridden by the model's file, overridden by flags.
void ChooseSampling(RunFlags& flags, const ModelWords& words) {
    const model_files::SamplingHints given = flags.sampling.Given();
    model_files::SamplingHints hints;
    if (flags.sampling.from_model()) hints = engine::HintsOf(*words.source);
    engine::SamplerOptions sampler = engine::DefaultSampling();
    engine::Apply(hints, sampler);
    engine::Apply(given, sampler);
    sampler.presence_penalty = flags.request.sampler.presence_penalty;
    sampler.frequency_penalty = flags.request.sampler.frequency_penalty;
    sampler.seed = flags.has_seed() ? flags.request.sampler.seed : engine::RandomSeed();
    if (sampler.dry.on() || IsConversation(flags)) {
        WEFT_CHECK(
            engine::SetDryBreakers(*words.tokenizer, engine::UsualDryBreakers(), sampler.dry).ok());
    }
    flags.request.sampler = sampler;
    flags.sampling_by = engine::SamplingOrigin(hints, given);
}

// "temp 0.8, top-k 40, seed 7 (by flags)".
std::string SamplingLine(const RunFlags& flags) {
    const engine::SamplerOptions& sampler = flags.request.sampler;
    const std::string seed =
        engine::IsGreedy(sampler) ? "" : fmt::format(", seed {}", sampler.seed);
    return fmt::format("{}{} ({})", engine::SamplingText(sampler), seed, flags.sampling_by);
}

Status RunPrompt(RunFlags& flags) {
    WEFT_TRY(Resolve(flags.common));
    WEFT_TRY(flags.sampling.Check());
    WEFT_TRY(engine::CheckDraft(flags.draft));
    WEFT_TRY(CheckForm(flags));
    WEFT_ASSIGN(flags.variables, ParseVariables(flags.template_kwargs));
    WEFT_TRY(FindDraft(flags.draft.model, flags.common.pull));
    engine::Job& job = flags.common.job;
    flags.request.adapter = job.adapters.empty() ? 0 : 1;
    const bool json = flags.common.json;
    WEFT_ASSIGN(ModelWords words, OpenWords(job));
    ChooseSampling(flags, words);
    if (IsConversation(flags)) {
        if (!flags.run.Given("--predict")) flags.request.max_tokens = -1;
        return RunChat(
            flags.common, words,
            {flags.system, flags.request, flags.has_seed(), flags.sampling_by, flags.variables},
            flags.draft);
    }
    WEFT_ASSIGN(const ChatPrompt prompt, MakePrompt(flags, words));
    flags.request.prompt = prompt.tokens;
    WEFT_ASSIGN(job.ctx, ContextFor(words.hyper, static_cast<int64_t>(flags.request.prompt.size()),
                                    flags.request.max_tokens, job));
    Outcome outcome;
    std::unique_ptr<engine::Engine> engine;
    {
        const LoadingLine line(fmt::format("loading {}", job.model), flags.common.cluster);
        const int64_t begin_ns = NowNs();
        engine::EngineOptions options = engine::OneAtATime(flags.draft);
        options.prefix_cache = job.keeps_pages();
        WEFT_ASSIGN(engine, engine::Engine::Start(flags.common.cluster, job, options,
                                                  std::move(words.tokenizer)));
        outcome.load_s = SecondsSince(begin_ns);
    }
    std::string& shown = outcome.text;
    auto generation = Answer(*engine, flags.request, prompt, json, shown);
    if (!generation.ok()) {
        // Keep the partial answer.
        if (!json && !shown.empty()) Stream("\n");
        if (json && !shown.empty()) KeepPartialJson({.fields = {{"text", shown}}});
        return generation.error();
    }
    outcome.generation = std::move(generation).value();
    outcome.transport = engine->cluster().fabric().transport;
    const model::Layout layout = engine->rank().layout();
    WEFT_ASSIGN(outcome.reports, engine->Finish());
    outcome.drafts = flags.draft.on();
    outcome.sampling = SamplingLine(flags);
    outcome.seed = flags.request.sampler.seed;
    outcome.recovers = flags.common.cluster.rejoin_ms > 0 || flags.common.cluster.elastic;
    outcome.recoveries = engine->stats().recoveries;
    outcome.all_reduce = CostOf(outcome.reports, layout);
    PrintOutcome(outcome, json);
    if (job.trace) WEFT_TRY(WriteTrace(flags.common.trace_file, outcome.reports));
    return {};
}

void AddSampling(const Command& run, RunFlags& flags) {
    const Command group = run.Group("Sampling");
    AddSamplingFlags(run, flags.sampling);
    engine::SamplerOptions& sampler = flags.request.sampler;
    group.AddOption("--presence-penalty", sampler.presence_penalty,
                    "Penalty on each token that the answer already has; 0 (default): off");
    group.AddOption("--frequency-penalty", sampler.frequency_penalty,
                    "Penalty on each occurrence of a token in the answer; 0 (default): off");
    group.AddOption("--seed", flags.request.sampler.seed,
                    "Seed of the sampler; equal seeds give equal answers (default: random)");
    group.AddEach("--stop", flags.request.stop,
                  "Stop string: ends the answer before this text; matches in reasoning do not "
                  "count; may be repeated");
}

}  // namespace

void AddRun(const Command& app, int& status) {
    auto flags = std::make_shared<RunFlags>();
    flags->request.max_tokens = kUsualTokens;
    const Command run = flags->run = app.AddCommand(
        "run", "Answer a prompt, or hold a conversation (at a terminal, without a prompt)",
        kRunFooter);
    AddModel(run, flags->common.job.model, flags->common.pull);
    run.AddOption("PROMPT", flags->words, "Prompt, as with -p; several words are joined");
    run.AddOption("-p,--prompt", flags->prompt, "Prompt");
    run.AddOption("-f,--file", flags->file,
                  "File with the prompt; - : standard input, which Weft also reads without -p, -f "
                  "and a terminal");
    run.AddFlag(
        "--chat", flags->chat,
        "Use the model's chat template (default if the model has one); fail if it has none");
    run.AddFlag("--raw", flags->raw, "Complete the prompt as it is, without a chat template");
    run.AddOption("--system", flags->system, "System message before the prompt");
    run.AddOption("--chat-template-kwargs JSON", flags->template_kwargs,
                  "Variables of the chat template; '{\"enable_thinking\": false}' turns reasoning "
                  "off if the template has a switch for it");
    run.AddNumber("-n,--predict", flags->request.max_tokens, kLeastTokens, kMostTokens,
                  "Maximum tokens to generate (128; in a conversation -1); -1: until the model "
                  "stops or the context is full");
    run.AddFlag("--ignore-eos", flags->request.ignore_eos, "Continue after an end-of-text token");
    AddSampling(run, *flags);
    AddDraftFlags(run, flags->draft);
    AddClusterFlags(run, flags->common);
    AddLayoutFlags(run, flags->common);
    AddRecoveryFlags(run, flags->common);
    AddLora(run, flags->common);
    AddEngineFlags(run, flags->common);
    AddKeptPages(run, flags->common.job);
    SetCallback(run, flags, flags->common.json, status, RunPrompt);
}

}  // namespace weft::cli
