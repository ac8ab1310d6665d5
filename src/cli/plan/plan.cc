// weft plan: predicts layouts of a model on machines: speed, memory and bottleneck.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/shell_word.h"
#include "cli/command_line/flags.h"
#include "cli/commands.h"
#include "cli/plan/plan.h"
#include "cli/terminal/output.h"
#include "plan/host_part.h"
#include "plan/weft_rates.h"

namespace weft::cli {
namespace {

constexpr const char* kPlanExamples =
    "Examples:\n"
    "  weft plan gpt-oss-120b --machines 4xstrix-halo,roce --context 4096\n"
    "  weft plan gpt-oss-120b --machines rtx-3090+128gb\n"
    "  weft plan llama-3.1-70b:q4_k_m --machines rtx-3090:2+strix-halo,10gbe --explain\n"
    "  weft plan model.gguf --machines 8xmy-machine.json,tcp --batch 16 --json\n"
    "  weft plan qwen3-235b-a22b:q4_k_m --want 20tok/s --budget 8000EUR\n"
    "  weft train estimate llama-3.1-70b --machines 8xh100 --seq-len 4096 --global-batch 1024\n"
    "  weft plan --measure --hosts b,c --key-file weft.key -o lab.json\n\n";

constexpr size_t kMostLayouts = 12;  // in the table

double MicrosecondTenths(double seconds) {
    return std::round(seconds * 1e7) / 10;
}

Json ExplainJson(const plan::Breakdown& parts) {
    Json json;
    for (const auto& row : plan::Breakdown::Rows()) {
        json[row.name] = parts.*row.seconds;
    }
    json["total"] = parts.total();
    return json;
}

bool HasRepository(const PlanFlags& flags) {
    return !SpecOfModel(RunnableName(flags.typed)).empty();
}

plan::RunRequest RequestOf(const PlanFlags& flags) {
    plan::RunRequest request{RunnableName(flags.typed),
                             RunnableName(flags.typed_draft),
                             flags.kv,
                             {},
                             HasRepository(flags),
                             flags.lora};
    const std::string& hosts = flags.common.hosts;
    for (size_t at = 0; at < hosts.size();) {
        const size_t comma = std::min(hosts.find(',', at), hosts.size());
        request.workers.push_back(hosts.substr(at, comma - at));
        at = comma + 1;
    }
    return request;
}

std::string RunText(const plan::Prediction& p, const plan::ClusterSpec& cluster,
                    const PlanFlags& flags) {
    return plan::LaunchCommand(RequestOf(flags), cluster, p, flags.load);
}

void PrintRun(const plan::Prediction& p, const plan::ClusterSpec& cluster, const PlanFlags& flags) {
    if (IsNotRun(flags.model)) return;
    const std::string host = plan::LaunchHost(RequestOf(flags), cluster, p);
    PrintOut("\nrun{}{}: {}\n", host.empty() ? "" : " on ", host, RunText(p, cluster, flags));
    if (!IsPlannedName(flags.typed) || HasRepository(flags)) return;
    PrintOut("(Weft knows no repository of {}: put one, or a file, in its place.)\n", flags.model);
}

Json SharesJson(const std::vector<double>& shares) {
    return shares.empty() ? Json(nullptr) : Json(shares);
}

// Layers whose experts the hosts' processors compute, and all layers with experts there.
std::pair<int64_t, int64_t> LayersOnHosts(const plan::Prediction& p) {
    int64_t layers = 0, of_layers = 0;
    for (size_t rank = 0; rank < p.memory.size(); rank += static_cast<size_t>(p.layout.tp)) {
        layers += p.memory[rank].host.layers;
        of_layers += p.memory[rank].host.of_layers;
    }
    return {layers, of_layers};
}

// The flag of `weft run` that fixes this placement, which --experts auto chooses at the start. It
// counts first layers without experts, too. With several stages the flag is "", because each stage
// keeps experts of its own.
std::string PlacementFlag(const plan::Prediction& p) {
    if (p.layout.pp > 1) return "";
    int64_t end = 0;
    for (const plan::MemoryUse& use : p.memory) end = std::max(end, use.host.end);
    return fmt::format("--experts cpu:{}", end);
}

Json HostJson(const plan::Prediction& p) {
    const plan::HostUse* host = p.UseOfHost();
    if (host == nullptr) return nullptr;
    const auto [layers, of_layers] = LayersOnHosts(p);
    return {{"layers", layers},
            {"of_layers", of_layers},
            {"host_bytes", host->needed},
            {"host_room_bytes", host->room},
            {"drive_share", host->on_drive},
            {"flag", PlacementFlag(p)}};
}

// "experts: those of 22 of 36 layers on the processor (--experts cpu:22), in 38.4 of 120.0 GB of
// its memory".
void PrintExperts(const plan::Prediction& p) {
    const plan::HostUse* host = p.UseOfHost();
    if (host == nullptr) return;
    const auto [layers, of_layers] = LayersOnHosts(p);
    const std::string flag = PlacementFlag(p);
    PrintOut(
        "experts: those of {} of {} layers on the processor{}, in {:.1f} of {:.1f} GB of its "
        "memory{}\n",
        layers, of_layers, flag.empty() ? "" : fmt::format(" ({})", flag), host->needed * 1e-9,
        host->room * 1e-9,
        host->on_drive > 0
            ? fmt::format("; {:.0f} % of them are read from the drive", host->on_drive * 100)
            : "");
}

Json LayoutJson(const plan::Prediction& p, const plan::ClusterSpec& cluster,
                const PlanFlags& flags) {
    const auto [limit, share] = p.token.limit();
    const plan::MemoryUse& worst = p.worst();
    const auto [needed, room] = worst.tightest();
    Json json = {{"layout", p.name},
                 {"tp", p.layout.tp},
                 {"pp", p.layout.pp},
                 {"ep", std::max(p.layout.ep, 1)},
                 {"tensor_shares", SharesJson(p.layout.tp_shares)},
                 {"stage_layers", SharesJson(p.layout.pp_shares)},
                 {"machines", p.hosts},
                 {"uses", UsedHosts(p.used, p.hosts, cluster).words},
                 {"run", IsNotRun(flags.model) ? Json(nullptr) : Json(RunText(p, cluster, flags))},
                 {"run_on", plan::LaunchHost(RequestOf(flags), cluster, p)},
                 {"answer_s", p.answer_s},
                 {"answer_s_spread", p.answer_spread},
                 {"tok_s", p.tok_s},
                 {"tok_s_spread", p.spread},
                 {"ttft_s", p.ttft_s},
                 {"ttft_s_spread", p.ttft_spread},
                 {"prompt_tok_s", p.prompt_tok_s},
                 {"fits", p.fits()},
                 {"worst_rank", worst.rank},
                 {"worst_rank_bytes", needed},
                 {"worst_rank_room_bytes", room},
                 {"experts_on_processor", HostJson(p)},
                 {"limit", limit},
                 {"limit_share", share},
                 {"joules_per_token", nullptr}};
    if (p.joules_per_token) json["joules_per_token"] = *p.joules_per_token;
    Json memory = Json::array();
    for (const plan::MemoryUse& use : p.memory) {
        memory.push_back({{"rank", use.rank},
                          {"weight_bytes", use.weights},
                          {"kv_bytes", use.cache},
                          {"work_bytes", use.work},
                          {"process_bytes", use.process},
                          {"host_bytes", use.host.total()}});
    }
    json["memory"] = std::move(memory);
    if (flags.explain) {
        json["token_s"] = ExplainJson(p.token);
        json["prompt_s"] = ExplainJson(p.prompt);
    }
    return json;
}

Json PlanAsJson(const plan::Plan& found, const plan::ClusterSpec& cluster, const PlanFlags& flags,
                const std::string& note) {
    Json layouts = Json::array(), what_if = Json::array();
    for (const plan::Prediction& p : found.layouts) {
        layouts.push_back(LayoutJson(p, cluster, flags));
    }
    for (const plan::WhatIf& w : found.what_if) {
        what_if.push_back({{"what", w.words},
                           {"layout", w.layout},
                           {"answer_s", w.answer_s},
                           {"tok_s", w.tok_s},
                           {"gain", w.gain},
                           {"stop_here", w.machines && w.gain < plan::kWorthwhile}});
    }
    return {{"model", flags.model},
            {"planned", flags.typed},
            {"machines", flags.machines},
            {"hosts", cluster.hosts.size()},
            {"ranks", cluster.ranks()},
            {"wire", cluster.wire.name},
            {"wire_assumed", cluster.wire_assumed},
            {"context", flags.load.context},
            {"batch", flags.load.batch},
            {"prompt", flags.load.prompt_tokens()},
            {"answer", flags.load.answer},
            {"depth", flags.load.depth},
            {"draft", flags.draft},
            {"note", note},
            {"layouts", std::move(layouts)},
            {"refused", found.refused},
            {"what_if", std::move(what_if)}};
}

// The number of hosts of a layout; for unlike hosts, their names.
std::string MachinesText(const plan::Prediction& p, const plan::ClusterSpec& cluster) {
    if (cluster.alike()) return fmt::format("{}", p.hosts);
    return UsedHosts(p.used, p.hosts, cluster).HostWords();
}

// "15 s ±13 %".
std::string WithSpread(double seconds, double spread) {
    if (seconds <= 0) return SecondsText(seconds);
    return fmt::format("{} ±{:.0f} %", SecondsText(seconds), spread / seconds * 100);
}

void PrintLayouts(const plan::Plan& found, const plan::ClusterSpec& cluster) {
    const size_t shown = std::min(found.layouts.size(), kMostLayouts);
    size_t wide = 8;
    for (size_t i = 0; i < shown; ++i) {
        wide = std::max(wide, MachinesText(found.layouts[i], cluster).size());
    }
    PrintOut("{:<14} {:>{}} {:>14} {:>15} {:>14}   {:<22} {:<22} {:>8}\n", "layout", "machines",
             wide, "answer", "tok/s", "TTFT", "fits (worst rank)", "limited by", "J/token");
    for (size_t i = 0; i < shown; ++i) {
        const plan::Prediction& p = found.layouts[i];
        const auto [needed, room] = p.worst().tightest();
        const auto [limit, share] = p.token.limit();
        PrintOut("{:<14} {:>{}} {:>14} {:>15} {:>14}   {:<22} {:<22} {:>8}{}\n", p.name,
                 MachinesText(p, cluster), wide, WithSpread(p.answer_s, p.answer_spread),
                 RateText(p.tok_s, p.spread), WithSpread(p.ttft_s, p.ttft_spread),
                 FitText(needed, room, p.fits()), fmt::format("{} {:.0f} %", limit, share * 100),
                 p.joules_per_token ? fmt::format("{:.1f}", *p.joules_per_token) : "-",
                 i == 0 && p.fits() ? "   <- fastest" : "");
    }
    if (shown < found.layouts.size()) {
        PrintOut("({} more: --json has all)\n", found.layouts.size() - shown);
    }
    if (!found.layouts[0].fits()) PrintOut("No layout fits: the one that lacks least is first.\n");
}

void PrintWhatIf(const plan::Plan& found) {
    std::string line;
    for (const plan::WhatIf& w : found.what_if) {
        line +=
            fmt::format("{}{} {}{}", line.empty() ? "" : " | ", w.words, SecondsText(w.answer_s),
                        w.machines && w.gain < plan::kWorthwhile ? " (stop here)" : "");
    }
    if (!line.empty()) PrintOut("what if: {}\n", line);
}

// Rounds each part separately; the total is the sum of the printed parts.
void PrintParts(const char* what, const plan::Breakdown& parts) {
    PrintOut("\n{}\n", what);
    double total = 0;
    for (const auto& row : plan::Breakdown::Rows()) {
        const double us = MicrosecondTenths(parts.*row.seconds);
        total += us;
        PrintOut("  {:<14} {:>14.1f} us {:>6.1f} %\n", row.name, us,
                 parts.*row.seconds / parts.total() * 100);
    }
    PrintOut("  {:<14} {:>14.1f} us\n", "total", total);
}

void PrintExplained(const plan::Prediction& p) {
    PrintParts(fmt::format("{}: a token of each sequence", p.name).c_str(), p.token);
    PrintParts(fmt::format("{}: a prompt", p.name).c_str(), p.prompt);
    PrintOut("\n{}: memory of rank\n", p.name);
    for (const plan::MemoryUse& use : p.memory) {
        PrintOut("  {:>4}  weights {:.2f} GB + KV cache {:.2f} GB + work {:.2f} GB\n", use.rank,
                 static_cast<double>(use.weights) * 1e-9, static_cast<double>(use.cache) * 1e-9,
                 static_cast<double>(use.work + use.process) * 1e-9);
    }
}

// Checks that both have the same tokens. (Embeddings may be padded, even to different lengths
// within a family.)
Status CheckDraft(const model::Hyper& model, const model::Hyper& draft) {
    if (100 * std::abs(model.vocab - draft.vocab) <= std::max(model.vocab, draft.vocab)) return {};
    return MakeError(ErrorCode::kUsage,
                     "--draft: its vocabulary has {} tokens, the model's {}: a draft has the "
                     "tokenizer of its model, as smaller ones of the same family do",
                     draft.vocab, model.vocab);
}

void AddNote(std::string& note, const std::string& more) {
    if (!note.empty() && !more.empty()) note += "; ";
    note += more;
}

Status FillRun(PlanFlags& flags, PlanRun& run) {
    WEFT_ASSIGN(const KvTypes kv_dtype, engine::ParseKvTypes("--kv-dtype", flags.kv));
    WEFT_ASSIGN(run.library, plan::Library::Open());
    flags.typed = WithUsualType(flags.model);
    engine::DraftOptions draft;
    draft.model = flags.draft;
    draft.tokens = flags.load.draft.tokens;
    draft = draft.Resolved();
    // (A block costs the head as much as a token.)
    if (draft.tokens == 0 && draft.at_once == 0) draft.tokens = plan::Draft().tokens;
    flags.load.draft.tokens = draft.most();
    const bool head = draft.head();
    if (head) flags.head = flags.draft;
    flags.typed_draft = head ? flags.draft : WithUsualType(flags.draft);
    std::vector<model_files::NamedAdapter> adapters;
    for (const std::string& word : flags.lora) {
        WEFT_ASSIGN(adapters.emplace_back(), model_files::ParseAdapter(word));
    }
    WEFT_ASSIGN(run.shape, plan::OpenWalk(flags.typed, kv_dtype, flags.head, adapters));
    AddNote(run.shape.note, TypeNote(flags, run.shape));
    if (IsNotRun(flags.model)) {
        AddNote(run.shape.note,
                "Weft does not run this model yet: the plan counts a known architecture of its "
                "sizes");
    }
    if (flags.draft.empty()) return {};
    if (head) {
        flags.load.draft.head = true;
        return model::CheckDraftHead(run.shape.walk.hyper(), flags.model);
    }
    WEFT_ASSIGN(run.draft, plan::OpenWalk(flags.typed_draft, kv_dtype));
    WEFT_TRY(CheckDraft(run.shape.walk.hyper(), run.draft.walk.hyper()));
    flags.load.draft.walk = &run.draft.walk;
    return {};
}

// Derives the missing ones of prompt, answer and context from the others, within the model's
// context.
Status SizeWork(PlanFlags& flags, const model::Hyper& hyper) {
    plan::Workload& load = flags.load;
    if (!flags.context.given()) load.context = std::min(load.context, hyper.context);
    const int64_t half = std::max<int64_t>(load.context / 2, 1);
    if (!flags.prompt.given()) {
        // A given context holds --depth, the prompt and, within the model's context, a token of
        // answer.
        const int64_t most =
            flags.context.given() ? std::min(load.context, hyper.context - 1) - load.depth : half;
        load.prompt = std::clamp<int64_t>(most, 1, half);
    }
    const int64_t prompt_end = load.depth + load.prompt;
    if (!flags.answer.given()) {
        const int64_t room = std::max<int64_t>(hyper.context - prompt_end, 1);
        load.answer = std::min({load.answer, half, room});
    }
    if (flags.context.given() && load.context < prompt_end) {
        return MakeError(ErrorCode::kUsage,
                         "--context {}: fewer than the {} tokens of --depth and --prompt. Use "
                         "--context {} or more, or a smaller --depth or --prompt",
                         load.context, prompt_end, prompt_end);
    }
    const int64_t filled = prompt_end + load.answer;
    const std::string asked =
        load.context >= filled
            ? fmt::format("--context {}", load.context)
            : fmt::format("--depth {}, a prompt of {} and an answer of {} tokens", load.depth,
                          load.prompt, load.answer);
    load.context = std::max(load.context, filled);
    WEFT_TRY(model::CheckContext(hyper, load.context, asked));
    constexpr int64_t kMostOfCache = int64_t{1} << 31;  // as --kv-tokens
    const int64_t tokens = load.AsJob({}).kv_tokens;
    if (tokens <= kMostOfCache) return {};
    return MakeError(ErrorCode::kUsage,
                     "--batch {} with {}: a KV cache of {} tokens, and 'weft serve' has at most "
                     "{}. Plan one of several servers",
                     load.batch, asked, tokens, kMostOfCache);
}

Status CheckTrainFlags(const PlanFlags& flags) {
    if (flags.backwards()) {
        return MakeError(
            ErrorCode::kUsage,
            "--train takes --machines, such as 8xh100, not --want, --budget or --ttft");
    }
    if (!flags.machines.empty()) return {};
    return MakeError(ErrorCode::kUsage, "--train requires --machines, such as 8xh100");
}

Status RunTraining(PlanFlags& flags) {
    WEFT_TRY(CheckTrainFlags(flags));
    for (const Option& option : flags.inference) {
        if (!option.given()) continue;
        return MakeError(
            ErrorCode::kUsage,
            "--train: {} is a flag of inference. Training has --seq-len, --micro-batch, "
            "--global-batch and --dtype",
            option.name());
    }
    flags.training.model = flags.model;
    flags.training.machines = flags.machines;
    flags.training.explain = flags.explain;
    flags.training.json = flags.json;
    return RunPlanTrain(flags.training);
}

// Rejects flags without effect.
Status CheckPlanFlags(const PlanFlags& flags) {
    if (flags.backwards() && flags.explain) {
        return MakeError(ErrorCode::kUsage,
                         "--explain describes one plan, but --want, --budget and --ttft list "
                         "machines. Use --explain with --machines alone");
    }
    if (!flags.machines.empty() || flags.backwards()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--machines says on what, such as 4xstrix-halo,roce; or --want 20tok/s and "
                     "--budget 8000EUR look for machines");
}

// Rejects what --measure would ignore.
Status CheckMeasureFlags(const PlanFlags& flags) {
    std::string other;
    if (!flags.model.empty()) other = "MODEL";
    if (!flags.machines.empty()) other = "--machines";
    if (flags.backwards()) other = "--want, --budget or --ttft";
    if (flags.explain) other = "--explain";
    if (flags.training.train) other = "--train";
    for (const Option& option : flags.inference) {
        if (option.given() && option.name() != "--kv-dtype") other = option.name();
    }
    if (other.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--measure runs synthetic models (--measure-with) on this machine, or on "
                     "--local or --hosts: it takes no {}",
                     other);
}

// The options of inference on the command line (" --batch 8"), for the command that Weft suggests.
std::string GivenOptions(const PlanFlags& flags) {
    std::string words;
    for (const Option& option : flags.inference) {
        if (option.given() && option.name() != "--lora") {
            words += fmt::format(" {} {}", option.name(), ShellWord(option.value()));
        }
    }
    for (const std::string& adapter : flags.lora) words += " --lora " + ShellWord(adapter);
    return words;
}

// Whether the model fits without the draft, but not with it.
bool FitsWithoutDraft(const PlanFlags& flags, const PlanRun& run,
                      const plan::ClusterSpec& cluster) {
    if (!flags.load.draft.on()) return false;
    plan::Workload alone = flags.load;
    alone.draft = {};
    return plan::FindBest(run.shape.walk, cluster, alone).ok();
}

void PrintLack(const PlanFlags& flags, const PlanRun& run, const std::string& fits_as,
               bool without_draft) {
    if (without_draft) PrintOut("Without --draft the model fits; the draft lacks memory.\n");
    if (!fits_as.empty()) {
        PrintOut("{} fits: weft plan {} --machines {}{}\n", fits_as.substr(fits_as.rfind(':') + 1),
                 ShellWord(fits_as), ShellWord(flags.machines), GivenOptions(flags));
    } else if (run.shape.is_shape && !without_draft) {
        PrintOut("No smaller type fits: the model needs more memory or more machines.\n");
    }
}

std::string WireNote(const plan::ClusterSpec& cluster) {
    if (!cluster.alike()) return "the slowest of the machines' own; say ,WIRE";
    return fmt::format("{}'s usual one; name another one, as --machines {}", cluster.hosts[0].kind,
                       ShellWord(cluster.words + "," + cluster.wire.instead));
}

Status RunPlan(PlanFlags& flags) {
    if (flags.measure) {
        WEFT_TRY(CheckMeasureFlags(flags));
        return MeasureHere(flags);
    }
    if (flags.model.empty()) {
        return MakeError(ErrorCode::kUsage, "MODEL is required, but with --measure");
    }
    if (flags.training.train) return RunTraining(flags);
    WEFT_TRY(CheckPlanFlags(flags));
    PlanRun run;
    WEFT_TRY(FillRun(flags, run));
    WEFT_TRY(SizeWork(flags, run.shape.walk.hyper()));
    if (flags.backwards()) {
        AddNote(run.shape.note, UnmeasuredNote(run.shape.walk));
        return PrintOffers(flags, run);
    }
    const plan::ModelWalk& walk = run.shape.walk;
    WEFT_ASSIGN(const plan::ClusterSpec cluster, run.library.ParseCluster(flags.machines));
    AddNote(run.shape.note, NotMeasuredNote(cluster));
    const bool tables = std::ranges::all_of(
        cluster.hosts, [](const plan::Machine& host) { return host.measured.has_value(); });
    if (!tables) AddNote(run.shape.note, UnmeasuredNote(walk));
    WEFT_ASSIGN(const plan::Plan found, plan::Search(walk, cluster, run.library, flags.load));
    const plan::Prediction& best = found.layouts[0];
    const std::string fits_as = best.fits() ? std::string() : TypeThatFits(flags, run, cluster);
    const bool without_draft = !best.fits() && FitsWithoutDraft(flags, run, cluster);
    if (best.fits() && plan::SkipsSelfTest(cluster, best)) {
        AddNote(run.shape.note,
                fmt::format("{} has tensor ranks on unlike devices, which do not compute the same "
                            "bits, so it runs with --skip-self-test",
                            best.name));
    }
    const bool on_host = best.UseOfHost() != nullptr;
    if (on_host) AddNote(run.shape.note, plan::HostNote(cluster));
    if (flags.json) {
        Json json = PlanAsJson(found, cluster, flags, run.shape.note);
        if (!fits_as.empty()) json["fits_as"] = fits_as;
        if (without_draft) json["fits_without_draft"] = true;
        PrintJson(json);
    } else {
        PrintLayouts(found, cluster);
        PrintOut("answer: {}\n", AnswerWords(flags.load));
        if (const std::string hosts = HostsText(cluster); !hosts.empty()) {
            PrintOut("machines: {}\n", hosts);
        }
        PrintExperts(best);
        if (!best.fits()) PrintLack(flags, run, fits_as, without_draft);
        if (cluster.wire_assumed) {
            PrintOut("wire: {}, assumed: {}\n", cluster.wire.name, WireNote(cluster));
        }
        if (!run.shape.note.empty()) PrintOut("note: {}\n", run.shape.note);
        PrintWhatIf(found);
        if (flags.explain) PrintExplained(best);
        if (flags.explain || (on_host && best.fits())) PrintRun(best, cluster, flags);
    }
    return {};
}

void AddInferenceOptions(const Command& command, PlanFlags& flags) {
    const auto add = [&](const char* name, auto& value, const char* help) {
        return flags.inference.emplace_back(command.AddOption(name, value, help));
    };
    plan::Workload& load = flags.load;
    constexpr int64_t kMost = int64_t{1} << 24;
    flags.context = add("--context", load.context,
                        "Tokens in the KV cache of each sequence during decode, at least --depth + "
                        "--prompt + --answer (default: 4096, or the model's context if smaller)")
                        .Range(int64_t{1}, kMost);
    add("--batch", load.batch, "Sequences that decode at once").Range(1, 4096).ShowDefault();
    flags.prompt = add("--prompt", load.prompt,
                       "Prompt length (default: half of --context, or what --depth leaves of it)")
                       .Range(int64_t{1}, kMost);
    flags.answer = add("--answer", load.answer,
                       "Answer length (default: 512). Layouts are ranked by the time of the prompt "
                       "and the whole answer")
                       .Range(int64_t{1}, kMost);
    add("--prefill-chunk", load.chunk, "Prefill chunk: prompt tokens in one step")
        .Range(1, 65536)
        .ShowDefault();
    add("--depth", load.depth, "Tokens in the KV cache before the prompt")
        .Range(int64_t{0}, kMost)
        .ShowDefault();
    add("--kv-dtype", flags.kv,
        "Type of the KV cache: f16, bf16, f32, q8_0, q5_1 or q4_0; or of keys and values: "
        "q8_0,q4_0")
        .ShowDefault();
    add("--lora", flags.lora,
        "NAME=FOLDER: hold an adapter in memory beside the model; may be repeated")
        .OneEach();
    const Option draft =
        add("--draft", flags.draft,
            "Draft model for speculative decoding, the folder of an EAGLE-3 or DFlash head for "
            "MODEL, or mtp: MODEL's own draft head");
    load.draft.tokens = 0;
    add("--draft-tokens", load.draft.tokens, "Draft tokens per step")
        .Range(int64_t{1}, engine::kMostDraftTokens)
        .Needs(draft)
        .DefaultText("4; with a DFlash head, its block");
    add("--draft-accepted", load.draft.accepted,
        "Probability that a draft token is accepted, 0 to 1")
        .Range(0.0, 1.0)
        .Needs(draft)
        .ShowDefault();
}

void AddBackwardsOptions(const Command& command, PlanFlags& flags) {
    command.AddOption("--want", flags.want,
                      "List machines that reach this speed of all sequences, such as 20tok/s");
    command.AddOption("--budget", flags.budget,
                      "List machines that cost at most this, such as 8000EUR");
    command.AddOption("--ttft", flags.ttft,
                      "List machines with at most this time to first token, such as 5s");
}

}  // namespace

std::string FitText(double needed_bytes, double space_bytes, bool fits) {
    // Use as many decimals as it takes to show which value is larger.
    for (const int digits : {1, 2, 3, 6, 9}) {
        const std::string needed = fmt::format("{:.{}f}", needed_bytes * 1e-9, digits);
        const std::string room = fmt::format("{:.{}f}", space_bytes * 1e-9, digits);
        const bool shown_to_fit = std::stod(needed) <= std::stod(room);
        if (shown_to_fit != (needed_bytes <= space_bytes)) continue;
        return fmt::format("{}{} of {} GB", fits ? "" : "no: ", needed, room);
    }
    return fmt::format("{}{:.0f} of {:.0f} bytes", fits ? "" : "no: ", needed_bytes, space_bytes);
}

std::string HostsText(const plan::ClusterSpec& cluster) {
    const size_t hosts = cluster.hosts.size();
    const plan::Machine& first = cluster.hosts[0];
    if (cluster.ranks() == 1) return {};
    if (!cluster.alike()) return fmt::format("{} hosts, {} devices", hosts, cluster.ranks());
    if (hosts == 1) return fmt::format("1 host with {} devices", cluster.ranks());
    std::string text = fmt::format("{} hosts with {} device{} each, {} devices in all", hosts,
                                   first.devices, first.devices == 1 ? "" : "s", cluster.ranks());
    if (!first.shares_memory() && first.word == first.kind) {
        text += fmt::format("; {}:{} is one host with {}", first.kind, hosts, hosts);
    }
    return text;
}

std::string NotMeasuredNote(const plan::ClusterSpec& cluster) {
    std::vector<std::string> parts;
    for (const plan::Machine& host : cluster.hosts) {
        if (plan::IsMeasured(host)) continue;
        std::string part = fmt::format("{} from {}", host.kind, plan::OriginOfRates(host));
        if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
    }
    if (parts.empty()) return {};
    return fmt::format("not measured with Weft, but computed: {}", fmt::join(parts, "; "));
}

std::string UnmeasuredNote(const plan::ModelWalk& walk) {
    if (walk.unmeasured().empty()) return {};
    return fmt::format("no model with {} is measured: the time of these ops is an estimate",
                       fmt::join(walk.unmeasured(), " and "));
}

std::string AnswerWords(const plan::Workload& load) {
    const auto tokens = [](int64_t count) {
        return fmt::format("{} token{}", count, count == 1 ? "" : "s");
    };
    const std::string one =
        fmt::format("a prompt of {} and {} of answer", tokens(load.prompt), tokens(load.answer));
    return load.batch == 1 ? one : fmt::format("{} sequences, each {}", load.batch, one);
}

std::string SecondsText(double seconds) {
    if (seconds >= 2 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
    if (seconds >= 10 * 60) return fmt::format("{:.1f} min", seconds / 60);
    return fmt::format("{:.{}f} s", seconds, seconds < 1 ? 2 : seconds < 10 ? 1 : 0);
}

int RateDigits(double rate, int least) {
    if (!(rate > 0) || rate >= 10) return least;
    return std::max(least, 1 - static_cast<int>(std::floor(std::log10(rate))));
}

std::string RateText(double rate, double spread, int least) {
    const int digits = RateDigits(rate, least);
    return fmt::format("{:.{}f} ±{:.{}f}", rate, digits, spread, digits);
}

void AddPlan(const Command& app, int& status) {
    auto flags = std::make_shared<PlanFlags>();
    const Command command = app.AddCommand(
        "plan", "Predict speed, memory and the best layout of Weft on machines that you describe");
    command.Footer(std::string(kPlanExamples) + kPlanWords);
    command.AddOption("MODEL", flags->model, kPlanModelHelp);
    command.AddOption("--machines", flags->machines, kMachinesHelp);
    AddInferenceOptions(command, *flags);
    command.AddFlag("--explain", flags->explain,
                    "Show the parts of the best layout's time and the command that runs it");
    AddBackwardsOptions(command, *flags);
    AddMeasureOptions(command, *flags);
    AddJson(command, flags->json);
    const Option train =
        command.AddFlag("--train", flags->training.train, "Predict training, not inference");
    AddPlanTrainFlags(command, flags->training, &train);
    SetCallback(command, flags, flags->json, status, RunPlan);
}

}  // namespace weft::cli
