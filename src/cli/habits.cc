#include "cli/habits.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace weft::cli {
namespace {

constexpr std::string_view kModel = "MODEL";
// Commands whose users bring the habits of inference programs.
constexpr std::string_view kInference[] = {"run", "serve", "bench"};

// Flags that mean the same; kModel: the value is the MODEL.
struct Synonym {
    std::string_view names, flag;
};
constexpr Synonym kSynonyms[] = {
    {"-m --model --model-name-or-path", kModel},
    {"-c --ctx-size --max-model-len", "--ctx"},
    {"--n-predict --max-new-tokens --max-tokens", "--predict"},
    {"--temperature", "--temp"},
    {"-s", "--seed"},
    {"-r --reverse-prompt", "--stop"},
    {"-sys --system-prompt", "--system"},
    {"-no-cnv --no-conversation", "--raw"},
    {"-cnv --conversation", "--chat"},
    {"-ub --ubatch-size", "--chunk"},
    {"-md --model-draft", "--draft"},
    {"--draft-max --draft-n --num-speculative-tokens", "--draft-tokens"},
    {"-dev", "--device"},
    {"-tp --tensor-parallel-size", "--tp"},
    {"-pp --pipeline-parallel-size", "--pp"},
    {"--max-num-seqs", "--max-seqs"},
    {"--max-num-batched-tokens", "--step-tokens"},
    {"--served-model-name", "--name"},
    {"--no-enable-prefix-caching", "--no-prefix-cache"},
    {"--disable-log-requests --no-enable-log-requests", "--no-access-log"},
    {"--ssl-cert-file --ssl-certfile", "--tls-cert"},
    {"--ssl-key-file --ssl-keyfile", "--tls-key"}};

// Flags without a counterpart, and what to do.
struct Advice {
    std::string_view names, advice;
};
constexpr Advice kAdvice[] = {
    {"-ngl --n-gpu-layers --gpu-layers",
     "a rank computes all its layers on one device. --device auto (the default) takes a GPU that "
     "the model fits; --device vulkan and --device cpu choose"},
    {"-ts --tensor-split -sm --split-mode -mg --main-gpu",
     "each GPU is a rank: --tp 3 --split 3,2,1 gives three ranks these shares of each layer"},
    {"--rpc", "each host runs 'weft worker' or 'weft up': --hosts b,c or --cluster home"},
    {"-fa --flash-attn", "attention is always fused; leave the flag out"},
    {"--jinja --chat-template --chat-template-file",
     "the model's own chat template is always used (--raw, of 'weft run', uses none); leave the "
     "flag out"},
    {"--mlock --no-mmap --mmap --numa --load-format",
     "weights are always read into memory; leave the flag out"},
    {"-b --batch-size", "--chunk N is the most prompt tokens in one step"},
    {"-np --parallel", "--max-seqs N, of 'weft serve': each sequence has the whole --ctx"},
    {"-ctk --cache-type-k -ctv --cache-type-v --kv-cache-dtype",
     "--kv f16, bf16, q8_0 or f32 is the type of keys and values"},
    {"-hf --hf-repo -hfr",
     "the repository is the MODEL: OWNER/NAME:TYPE --pull, after 'weft run' or 'weft serve'"},
    {"--lora-modules --enable-lora", "--lora NAME=FOLDER, of 'weft serve', adds an adapter"},
    {"--mmproj --image", "Weft reads no images; leave the flag out"},
    {"--grammar --grammar-file -j --json-schema --format",
     "'weft serve' takes a response_format in each request (docs/structured.md)"},
    {"-i --interactive -if", "'weft run MODEL' without a prompt, at a terminal, is a conversation"},
    {"--keepalive", "'weft serve MODEL' keeps the model loaded until it is stopped"},
    {"--host --port", "'weft serve' listens: weft serve MODEL --host HOST --port PORT"},
    {"--api-key", "--api-key-file FILE; 'weft key new NAME' makes a key for it"},
    {"--gpu-memory-utilization --mem-fraction-static",
     "memory follows from --ctx, and for 'weft serve' --max-seqs and --kv-tokens; leave the flag "
     "out"},
    {"--dtype -q --quantization",
     "weights keep the types of their file; 'weft quantize' writes a file of another type"},
    {"-ep --enable-expert-parallel --expert-parallel-size",
     "--ep N makes N expert groups of the tensor ranks"},
    {"-dp --data-parallel-size", "start one 'weft serve' for each replica"},
    {"--cpu-offload-gb --swap-space -ot --override-tensor --cpu-moe --n-cpu-moe",
     "what one device cannot hold is for more ranks: --tp N, --pp N or --hosts"},
    {"--trust-remote-code", "Weft runs no code of a model; leave the flag out"},
    {"--enforce-eager --enable-chunked-prefill --enable-prefix-caching --cont-batching -cb",
     "Weft always does what this asks for, or needs no such choice; leave the flag out"},
    {"--enable-auto-tool-choice --tool-call-parser --reasoning-parser",
     "the model's template decides how tools and thoughts are written; leave the flag out"},
    {"--tokenizer", "the tokenizer is the model's; leave the flag out"},
    {"--download-dir", "HF_HUB_CACHE in the environment names the folder"},
    {"--revision", "the MODEL names it: OWNER/NAME@REVISION"},
    {"--metrics --webui --no-webui --slots",
     "/metrics and the page are always served; leave the flag out"}};

// Commands of other programs: the one here, or what to do.
struct OtherCommand {
    std::string_view name, command, advice;
};
constexpr OtherCommand kCommands[] = {
    {"chat", "run", ""},
    {"ls", "list", ""},
    {"download", "pull", ""},
    {"ps", "",
     "no service holds models in the background. 'weft hosts' shows the hosts of a cluster, and "
     "GET /api/ps of a 'weft serve' its model"},
    {"stop", "", "Ctrl-C or SIGTERM ends the 'weft serve' of the model"},
    {"create", "", "Weft runs files as they are: weft run FILE. 'weft quantize' changes the type"},
    {"push", "", "Weft fetches from the Hub only: 'hf upload' sends a model there"},
    {"cp", "", "'weft serve MODEL --name NAME' gives a model another name"},
    {"server", "serve", ""},
    {"collect-env", "doctor", ""}};

// Commands without their MODEL, and with one word too many.
struct Lacking {
    std::string_view command, nothing, second;
};
constexpr Lacking kLacking[] = {
    {"run", "MODEL is missing: weft run MODEL, such as qwen3:8b. 'weft list' shows those here", ""},
    {"serve", "MODEL is missing: weft serve MODEL, such as qwen3:8b. 'weft list' shows those here",
     "a server has one model. In another terminal: weft serve {} --port 8081"}};

bool Lists(std::string_view names, std::string_view name) {
    for (size_t at = 0; at < names.size();) {
        const size_t end = std::min(names.find(' ', at), names.size());
        if (names.substr(at, end - at) == name) return true;
        at = end + 1;
    }
    return false;
}

bool IsInference(const DescribedCommand& command) {
    return std::ranges::find(kInference, command.name) != std::end(kInference);
}

bool Takes(const DescribedCommand& command, std::string_view flag) {
    if (flag != kModel) return command.FindFlag(std::string(flag)) != nullptr;
    return std::ranges::any_of(command.flags, [](const DescribedFlag& each) {
        return each.positional && each.names[0] == kModel;
    });
}

// One command line, once its command is known.
class Line {
  public:
    Line(const DescribedCommand& command, size_t first, std::vector<std::string>& words)
        : command_(command), first_(first), words_(words) {}

    Status Apply() {
        for (size_t at = first_; at < words_.size() && words_[at] != "--"; ++at) {
            if (words_[at].size() < 2 || words_[at][0] != '-') {
                bare_.push_back(at);
                continue;
            }
            WEFT_TRY(ApplyTo(at));
        }
        const auto row = std::ranges::find(kLacking, command_.name, &Lacking::command);
        if (row == std::end(kLacking)) return {};
        if (words_.size() == first_) {
            return MakeError(ErrorCode::kUsage, "'weft {}': {}", command_.name, row->nothing);
        }
        if (row->second.empty() || bare_.size() < 2) return {};
        return MakeError(ErrorCode::kUsage, "'weft {}': {}", command_.name,
                         fmt::format(fmt::runtime(row->second), words_[bare_[1]]));
    }

  private:
    // The flag at a place; `at` moves behind its value.
    Status ApplyTo(size_t& at) {
        const size_t equals = std::min(words_[at].find('='), words_[at].size());
        std::string name = words_[at].substr(0, equals);
        if (command_.FindFlag(name) == nullptr) {
            if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
            const auto same = std::ranges::find_if(kSynonyms, [&](const Synonym& row) {
                return Lists(row.names, name) && Takes(command_, row.flag);
            });
            if (same == std::end(kSynonyms)) return Advise(name);
            if (same->flag == kModel) return MoveModel(at, equals);
            words_[at].replace(0, equals, same->flag);
            name = same->flag;
        }
        const DescribedFlag* flag = command_.FindFlag(name);
        const bool joined = words_[at].find('=') != std::string::npos;
        if (!joined && flag->kind != ValueKind::kNone) ++at;
        return {};
    }

    // To where a MODEL stands: right behind the command.
    Status MoveModel(size_t& at, size_t equals) {
        std::string model = words_[at].substr(std::min(equals + 1, words_[at].size()));
        const bool joined = equals < words_[at].size();
        if (!joined && at + 1 == words_.size()) {
            return MakeError(ErrorCode::kUsage, "{} needs a MODEL behind it", words_[at]);
        }
        if (!joined) {
            model = words_[at + 1];
            words_.erase(words_.begin() + static_cast<ptrdiff_t>(at) + 1);
        }
        words_.erase(words_.begin() + static_cast<ptrdiff_t>(at));
        words_.insert(words_.begin() + static_cast<ptrdiff_t>(first_), model);
        for (size_t& place : bare_) ++place;
        bare_.insert(bare_.begin(), first_);
        return {};
    }

    Status Advise(const std::string& name) const {
        if (!IsInference(command_)) return {};
        for (const Advice& row : kAdvice) {
            if (!Lists(row.names, name)) continue;
            return MakeError(ErrorCode::kUsage, "'weft {}' has no flag {}: {}", command_.name, name,
                             row.advice);
        }
        return {};
    }

    const DescribedCommand& command_;
    size_t first_;
    std::vector<std::string>& words_;
    std::vector<size_t> bare_;  // places of words that are neither flags nor their values
};

}  // namespace

Status ApplyHabits(const DescribedCommand& program, std::vector<std::string>& words) {
    if (words.empty()) return {};
    const auto other = std::ranges::find(kCommands, words[0], &OtherCommand::name);
    if (other != std::end(kCommands) && program.Find(words[0]) == nullptr) {
        if (other->command.empty()) {
            return MakeError(ErrorCode::kUsage, "there is no 'weft {}': {}", words[0],
                             other->advice);
        }
        words[0] = other->command;
    }
    const DescribedCommand* command = &program;
    size_t first = 0;
    while (first < words.size()) {
        const DescribedCommand* below = command->Find(words[first]);
        if (below == nullptr) break;
        command = below;
        ++first;
    }
    return first == 0 ? Status() : Line(*command, first, words).Apply();
}

}  // namespace weft::cli
