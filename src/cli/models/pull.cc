// weft pull: downloads a model, or one rank's shard, from the Hugging Face Hub to the cache folder.
#include "hub/pull.h"
#include "cluster/frame.h"

#include <algorithm>
#include <deque>

#include "base/deadline.h"
#include "cli/commands.h"
#include "cli/models/model_names.h"
#include "cli/models/pull_model.h"
#include "engine/rank/shard_ranges.h"
#include "hub/short_names.h"
#include "model/shard.h"

namespace weft::cli {
namespace {

constexpr const char* kPullFooter =
    "NAME is [hf:]OWNER/NAME[@REVISION][:FILE or TYPE], a short name ('weft list --names' lists\n"
    "them), or a name that 'weft plan' takes, such as qwen3-8b:q8_0. A TYPE such as Q4_K_M\n"
    "selects the GGUF file with that type in its name; a FILE selects that file and all its\n"
    "parts. Without either, Weft downloads the safetensors, their settings and tokenizer, or\n"
    "the only GGUF file.\n\n"
    "hf:datasets/OWNER/NAME[@REVISION][:CONFIG][/SPLIT] is a split of a data set for 'weft train\n"
    "--data' (default: train): the files that its README, their names or folders give the "
    "split.\n\n"
    "Weft checks all data against the Hub's hashes, and shares the cache folder of\n"
    "huggingface_hub ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). After Ctrl-C, a\n"
    "lost connection or a kill, the same command resumes. Set HF_TOKEN for private and gated\n"
    "models, HF_ENDPOINT for another Hub, https_proxy for a proxy, and SSL_CERT_FILE for other\n"
    "CA certificates.\n\n"
    "Examples:\n"
    "  weft pull Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
    "  weft pull qwen3:8b\n"
    "  weft run qwen3:8b -p \"Hello\"\n"
    "  weft pull Qwen/Qwen3-8B\n"
    "  weft pull owner/name@v1.0:model-q8.gguf --json\n"
    "  weft pull hf:datasets/openai/gsm8k:main/train\n\n"
    "With --shard, each host downloads only the bytes of its rank; here rank 1 of three:\n"
    "  weft pull hf:Qwen/Qwen3-8B-GGUF:Q4_K_M --shard 1/3 --tensor-split 3,2,1\n"
    "Then run the model with the same layout.";

struct PullFlags {
    std::string name, ca_file, shard, split;
    double timeout_s = 120;
    int connections = 8, tp = 0, pp = 0, ep = 0;
    uint64_t gap_kib = 256;
    bool json = false;
};

std::string Ascii(const std::string& text, size_t most) {
    return text.size() <= most ? text : "..." + text.substr(text.size() - most + 3);
}

Json PullJson(const PullFlags& flags, const hub::RepoSpec& spec, const hub::Pulled& pulled) {
    Json files = Json::array();
    for (const hub::PulledFile& file : pulled.files) {
        files.push_back({{"path", file.file.path},
                         {"bytes", file.file.bytes},
                         {file.file.large ? "sha256" : "git_sha1", file.file.hash},
                         {"cached", file.cached},
                         {"fetched_bytes", file.fetched_bytes},
                         {"resumed_bytes", file.resumed_bytes}});
        if (!flags.shard.empty()) files.back()["shard_bytes"] = file.shard_bytes;
    }
    Json json = {{"repository", spec.Repo()},   {"revision", spec.revision},
                 {"commit", pulled.commit},     {spec.is_dataset ? "folder" : "model", pulled.path},
                 {"bytes", pulled.total_bytes}, {"fetched_bytes", pulled.fetched_bytes},
                 {"seconds", pulled.seconds},   {"files", files}};
    if (!flags.shard.empty()) json["shard"] = flags.shard;
    return json;
}

Result<hub::Pulled> PullShardShown(const PullFlags& flags, const hub::Config& config,
                                   const hub::RepoSpec& spec);

Status RunPullCommand(PullFlags& flags) {
    // (A local path with this name is ignored.)
    auto parsed = hub::ParseSpec(hub::ExpandShortName(flags.name));
    if (!parsed.ok()) {
        WEFT_ASSIGN(const std::string meant, NeedSpec(flags.name));
        parsed = hub::ParseSpec(meant);
    }
    WEFT_ASSIGN(const hub::RepoSpec spec, std::move(parsed));
    WEFT_ASSIGN(hub::Config config, hub::ConfigFromEnvironment());
    if (!flags.ca_file.empty()) config.ca_file = flags.ca_file;
    config.connections = flags.connections;
    config.SetTimeout(static_cast<int64_t>(flags.timeout_s * 1000));
    config.stop = CatchInterrupts();
    WEFT_ASSIGN(const hub::Pulled pulled, flags.shard.empty()
                                              ? PullShown(config, spec)
                                              : PullShardShown(flags, config, spec));
    if (flags.json) {
        PrintJson(PullJson(flags, spec, pulled));
        return {};
    }
    for (const hub::PulledFile& file : pulled.files) {
        PrintOut(
            "{:>12}  {}{}{}\n", BytesText(file.shard_bytes), file.file.path,
            file.is_partial ? fmt::format("  (of {})", BytesText(file.file.bytes)) : std::string(),
            file.cached              ? "  (cached)"
            : file.resumed_bytes > 0 ? "  (resumed)"
                                     : "");
    }
    if (pulled.fetched_bytes > 0) {
        PrintOut("{} in {:.1f} s ({:.1f} MB/s)\n", BytesText(pulled.fetched_bytes), pulled.seconds,
                 static_cast<double>(pulled.fetched_bytes) * 1e-6 / std::max(pulled.seconds, 1e-3));
    }
    PrintOut("commit {}\n{}\nweft {} {} ...\n", pulled.commit, pulled.path,
             spec.is_dataset ? "train MODEL --data" : "run", spec.Text());
    return {};
}

// The progress line. The speed covers the last few seconds.
class Progress {
  public:
    std::string Text(const hub::PullState& state) {
        const std::string name = state.file == nullptr ? "" : Ascii(state.file->path, 32);
        if (state.waiting)
            return fmt::format("{}: waiting for another program that downloads it ...", name);
        const int64_t now_ns = NowNs();
        seen_.emplace_back(now_ns, state.fetched_bytes);
        while (seen_.size() > 2 && now_ns - seen_.front().first > kSpeedNs) seen_.pop_front();
        const double seconds = static_cast<double>(now_ns - seen_.front().first) * 1e-9;
        const auto gained = static_cast<double>(state.fetched_bytes - seen_.front().second);
        const double speed = seconds > 0 ? gained / seconds : 0;
        const double share = state.total_bytes > 0 ? static_cast<double>(state.there_bytes) /
                                                         static_cast<double>(state.total_bytes)
                                                   : 0;
        const auto filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * kBar);
        std::string text =
            fmt::format("{}/{} {} [{}{}] {:.1f}% of {}", state.file_number, state.file_count, name,
                        std::string(filled, '#'), std::string(kBar - filled, '.'), share * 100,
                        BytesText(state.total_bytes));
        if (speed > 0) {
            const auto left = static_cast<double>(state.total_bytes - state.there_bytes) / speed;
            text += fmt::format(", {:.1f} MB/s, {}", speed * 1e-6, Left(left));
        }
        return text;
    }

  private:
    static constexpr int64_t kSpeedNs = 5'000'000'000;
    static constexpr size_t kBar = 20;

    static std::string Left(double seconds) {
        const auto s = static_cast<int64_t>(std::min(seconds, 1e7));
        if (s >= 3600) return fmt::format("{}:{:02}:{:02} left", s / 3600, s / 60 % 60, s % 60);
        return fmt::format("{}:{:02} left", s / 60, s % 60);
    }

    std::deque<std::pair<int64_t, uint64_t>> seen_;  // time, bytes
};

Result<hub::Pulled> PullShardShown(const PullFlags& flags, const hub::Config& config,
                                   const hub::RepoSpec& spec) {
    WEFT_ASSIGN(engine::ShardOf shard, engine::ParseShard(flags.shard));
    WEFT_ASSIGN(shard.split, model::ParseShares(flags.split));
    shard.tp = flags.tp;
    shard.pp = flags.pp;
    shard.ep = flags.ep;
    shard.gap_bytes = flags.gap_kib << 10;
    // Check the layout before requests to the Hub.
    WEFT_ASSIGN([[maybe_unused]] const model::Layout layout,
                model::MakeLayout(shard.ranks, shard.tp, shard.pp, shard.split, shard.ep));
    ProgressLine line;
    Progress progress;
    return hub::PullShard(
        config, spec, [&](const std::string& model) { return engine::RangesOfShard(model, shard); },
        [&](const hub::PullState& state) { line.Show(progress.Text(state)); });
}

void AddShardFlags(const Command& command, PullFlags& flags) {
    const Command group = command.Group("One rank's shard");
    const Option shard = group.AddOption(
        "--shard", flags.shard,
        "Download only the bytes that one rank reads, as RANK/RANKS, counted from 0: 1/3");
    const auto number = [&](const char* name, int& value, const char* help) {
        group.AddNumber(name, value, 1, static_cast<int>(cluster::kMostRanks), help).Needs(shard);
    };
    number("--tp", flags.tp, "Tensor-parallel ranks of the layout (default: all ranks)");
    number("--pp", flags.pp, "Pipeline stages of the layout (default: 1)");
    number("--ep", flags.ep, "Expert-parallel groups of the layout (default: as the model needs)");
    group.AddOption("--tensor-split", flags.split, "Shares of the layout, such as 3,2,1")
        .Needs(shard);
    group
        .AddNumber("--gap", flags.gap_kib, 0, 1 << 20,
                   "Join byte ranges that are at most this many KiB apart (256)")
        .Needs(shard);
}

}  // namespace

Result<hub::Pulled> PullShown(const hub::Config& config, const hub::RepoSpec& spec) {
    ProgressLine line;
    Progress progress;
    return hub::Pull(config, spec,
                     [&](const hub::PullState& state) { line.Show(progress.Text(state)); });
}

void AddPull(const Command& app, int& status) {
    auto flags = std::make_shared<PullFlags>();
    const Command command = app.AddCommand(
        "pull", "Download a model or a data set from the Hugging Face Hub", kPullFooter);
    command
        .AddOption("NAME", flags->name,
                   "Model or data set to download, such as hf:Qwen/Qwen3-8B-GGUF:Q4_K_M")
        .Required();
    command.AddNumber("--timeout", flags->timeout_s, 1.0, 86400.0,
                      "Give up after this many seconds without data (120)");
    command.AddNumber("--connections", flags->connections, 1, 64, "Connections per file (8)");
    command
        .AddOption("--cacert", flags->ca_file, "CA certificates to trust instead of the system's")
        .ExistingFile();
    AddShardFlags(command, *flags);
    SetJsonCallback(command, flags, status, RunPullCommand);
}

}  // namespace weft::cli
