#include "model_files/hf/export.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/on_threads.h"
#include "base/output_file.h"
#include "model_files/hf/export_vectors.h"
#include "model_files/hf/family.h"
#include "model_files/hf/folder_config.h"
#include "model_files/read_tokenizer.h"
#include "model_files/sampling.h"
#include "model_files/score_head.h"
#include "tensor/encode.h"
#include "tokenizer/open.h"
#include "tokenizer/write_json.h"

namespace weft::model_files::hf {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStripElements = 1 << 20;
constexpr size_t kAlignment = 8;  // of the header, as safetensors' own writer does

// Files in a folder that are copied because they do not depend on the weights.
constexpr std::string_view kCompanions[] = {"tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "tokenizer.model",
                                            "spiece.model",
                                            "tiktoken.model",
                                            "tekken.json",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "generation_config.json",
                                            "sentence_bert_config.json",
                                            "config_sentence_transformers.json",
                                            "preprocessor_config.json",
                                            "processor_config.json",
                                            "video_preprocessor_config.json"};

DType DTypeOf(SafeType type) {
    if (type == SafeType::kF32) return DType::kF32;
    return type == SafeType::kF16 ? DType::kF16 : DType::kBF16;
}

Error NoPlace(const ModelSource& source, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} cannot be written to a Hugging Face folder; write a GGUF file instead "
                     "(--save-format gguf)",
                     source.name(), what);
}

// The family whose tensor names the folder has.
Result<const Family*> FamilyOf(const ModelSource& source) {
    WEFT_ASSIGN(const std::string type, ExportType(source));
    Json json = {{"model_type", type}};
    const bool own = !source.folder().empty();  // then config.json stays as it is
    if (own) {
        WEFT_ASSIGN(const Config read, Config::Read(source.folder() + "/config.json"));
        if (!read.Has("text_config")) json = read.json();
    }
    WEFT_ASSIGN(const Config config, Config::Parse(json.dump(), source.name()));
    WEFT_ASSIGN(const Family* family, FindFamily(config));
    const bool renames = family->embedding != "embed_tokens" || family->final_norm != "norm";
    bool plain = family->layer == nullptr && family->qkv.module.empty() && !renames;
    if (plain && own && family->ends != nullptr) {  // the source's ends have the factors
        WEFT_ASSIGN(const Config text, TextConfig(config, *family));
        WEFT_ASSIGN(const EndScales ends, family->ends(text));
        plain = ends.embedding == 1 && ends.output == 1;
    }
    if (plain && (own || family->adjust == nullptr)) return family;
    return NoPlace(source, "a model of type " + std::string(family->model_type));
}

// "blk.3.attn_q.weight": 3, "attn_q", "weight". A vector's name may end with its module.
struct LayerName {
    std::string layer, module, kind;
};
std::optional<LayerName> SplitName(const std::string& name) {
    constexpr std::string_view kBegin = "blk.";
    const size_t dot = name.find('.', kBegin.size()), last = name.rfind('.');
    if (!name.starts_with(kBegin) || dot == name.npos) return std::nullopt;
    if (last <= dot)
        return LayerName{name.substr(kBegin.size(), dot - kBegin.size()), name.substr(dot + 1), ""};
    return LayerName{name.substr(kBegin.size(), dot - kBegin.size()),
                     name.substr(dot + 1, last - dot - 1), name.substr(last + 1)};
}

const RuleOf<std::string>* FindRule(const std::vector<RuleOf<std::string>>& rules,
                                    const LayerName& name) {
    const std::string whole = name.kind.empty() ? name.module : name.module + "." + name.kind;
    const auto fits = [&](const RuleOf<std::string>& rule) {
        return rule.gguf == (rule.form == Form::kVector ? whole : name.module);
    };
    const auto found = std::ranges::find_if(rules, fits);
    return found == rules.end() ? nullptr : &*found;
}

struct End {
    std::string_view gguf, hf;
};
// {}: Family::embedding, Family::output or Family::final_norm. *: as in AddExperts.
constexpr End kEnds[] = {{"token_embd.weight", "model.{}.weight"},
                         {"output_norm.weight", "model.{}.weight"},
                         {"output_norm.bias", "model.{}.bias"},
                         {"output.weight", "{}.weight"},
                         {"output.bias", "{}.bias"},
                         {"cls.output.weight", "score.weight"},
                         {"cls.output.bias", "score.bias"},
                         // OPT
                         {"token_embd_proj.weight", "model.project_in.weight"},
                         {"output_proj.weight", "model.project_out.weight"},
                         // Gemma 3n and 4
                         {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
                         {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
                         {"altup_proj.weight", "model.altup_projections.*.weight"},
                         {"altup_unembd_proj.weight", "model.altup_unembed_projections.*.weight"}};

Result<int64_t> HeadDimOf(const ModelSource& source, const Family& family) {
    const std::string prefix(family.architecture);
    WEFT_ASSIGN(const TensorInfo* embedding, source.NeedTensor("token_embd.weight"));
    const std::string key_length = prefix + ".attention.key_length";
    if (source.meta().Has(key_length)) return source.meta().Int(key_length, 2, 1 << 16);
    WEFT_ASSIGN(const int64_t heads,
                source.meta().Int(prefix + ".attention.head_count", 1, 1 << 16));
    const int64_t head_dim = embedding->cols / heads;
    if (head_dim >= 2) return head_dim;
    return MakeError(ErrorCode::kCorrupt, "{}: {} heads in {} columns", source.name(), heads,
                     embedding->cols);
}

// ---- Data ---------------------------------------------------------------------------------------

// One file: its tensors and its header.
struct Shard {
    std::string name;
    std::vector<ExportTensor> tensors;
    std::vector<uint64_t> offsets;  // of each tensor's first byte, from the start of the file
    std::string header;
    uint64_t bytes = 0;
};

// The tensor's type in a folder of `type`.
SafeType TypeIn(const ExportTensor& tensor, SafeType type) {
    if (tensor.bytes) return tensor.bytes->type;
    return tensor.routes ? SafeType::kF32 : type;
}

uint64_t BytesOf(const ExportTensor& tensor, SafeType type) {
    if (tensor.bytes) return tensor.from->bytes;
    return static_cast<uint64_t>(tensor.rows * tensor.from->cols) *
           SafeTypeBytes(TypeIn(tensor, type));
}

std::vector<Shard> MakeShards(std::vector<ExportTensor> tensors, const ExportOptions& options) {
    std::vector<Shard> shards(1);
    uint64_t filled = 0;
    for (ExportTensor& tensor : tensors) {
        const uint64_t bytes = BytesOf(tensor, options.type);
        if (filled > 0 && filled + bytes > options.shard_bytes) {
            shards.emplace_back();
            filled = 0;
        }
        filled += bytes;
        shards.back().tensors.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < shards.size(); ++i) {
        Shard& shard = shards[i];
        shard.name = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
        Json header = {{"__metadata__", {{"format", "pt"}}}};
        for (const ExportTensor& tensor : shard.tensors) {
            const uint64_t end = shard.bytes + BytesOf(tensor, options.type);
            Json shape = Json::array({tensor.from->cols});
            const bool matrix = tensor.matrix || tensor.from->dim_count > 1;
            if (matrix) shape.insert(shape.begin(), tensor.rows);
            if (tensor.shape) shape = *tensor.shape;
            const SafeType type = TypeIn(tensor, options.type);
            header[tensor.name] = {{"dtype", std::string(SafeTypeName(type))},
                                   {"shape", shape},
                                   {"data_offsets", {shard.bytes, end}}};
            shard.offsets.push_back(shard.bytes);
            shard.bytes = end;
        }
        std::string text = header.dump();
        text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
        const uint64_t length = text.size();
        shard.header.assign(sizeof length, '\0');
        std::memcpy(shard.header.data(), &length, sizeof length);
        shard.header += text;
        for (uint64_t& offset : shard.offsets) offset += shard.header.size();
        shard.bytes += shard.header.size();
    }
    return shards;
}

// Reorders the rows of each head from neighboring pairs to halves.
void PairsToHalves(std::span<std::byte> rows, size_t row_bytes, int64_t head_dim,
                   std::vector<std::byte>& head) {
    const size_t half = static_cast<size_t>(head_dim) / 2;
    const size_t head_bytes = 2 * half * row_bytes;
    head.resize(head_bytes);
    for (size_t begin = 0; begin < rows.size(); begin += head_bytes) {
        std::byte* const at = rows.data() + begin;
        for (size_t i = 0; i < half; ++i) {
            std::memcpy(head.data() + i * row_bytes, at + 2 * i * row_bytes, row_bytes);
            std::memcpy(head.data() + (half + i) * row_bytes, at + (2 * i + 1) * row_bytes,
                        row_bytes);
        }
        std::memcpy(at, head.data(), head_bytes);
    }
}

// Writes a file with all threads, each with its own strips of rows.
class ShardWriter {
  public:
    ShardWriter(const ModelSource& source, const Shard& shard, const ExportOptions& options,
                OutputFile& file)
        : source_(source), shard_(shard), options_(options), file_(file) {}

    Status Run() {
        const auto threads = static_cast<size_t>(options_.threads);
        WEFT_TRY(OnThreads(threads, threads, [this](size_t) {
            Work();
            return Status();
        }));
        return error_ ? Status(*error_) : Status();
    }

  private:
    struct Strip {
        size_t tensor;
        int64_t row, rows;
    };
    struct Buffers {
        std::vector<std::byte> raw, out, head;
        std::vector<float> floats;
    };

    std::optional<Strip> Next() {
        const std::lock_guard lock(mutex_);
        if (error_ || tensor_ == shard_.tensors.size()) return std::nullopt;
        const ExportTensor& tensor = shard_.tensors[tensor_];
        const int64_t unit = UnitOf(tensor);
        const int64_t units = std::max<int64_t>(1, kStripElements / (unit * tensor.from->cols));
        const Strip strip{tensor_, row_, std::min(units * unit, tensor.rows - row_)};
        row_ += strip.rows;
        if (row_ == tensor.rows) {
            ++tensor_;
            row_ = 0;
        }
        return strip;
    }

    static bool IsVector(const ExportTensor& tensor) { return tensor.from->dim_count == 1; }
    // The number of rows that are reordered together.
    static int64_t UnitOf(const ExportTensor& tensor) {
        return tensor.pairs_of > 0 && !IsVector(tensor) ? tensor.pairs_of : 1;
    }

    void Work() {
        Buffers buffers;
        while (const std::optional<Strip> strip = Next()) {
            const Status done = One(*strip, buffers);
            if (done.ok()) continue;
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = done.error();
        }
    }

    Status One(const Strip& strip, Buffers& b) {
        if (options_.stop != nullptr && options_.stop->load()) {
            return MakeError(ErrorCode::kCancelled, "stopped; nothing in the folder has changed");
        }
        const ExportTensor& tensor = shard_.tensors[strip.tensor];
        const TensorInfo& from = *tensor.from;
        const SafeType type = TypeIn(tensor, options_.type);
        const DType to = DTypeOf(type);
        const auto rows = static_cast<size_t>(strip.rows);
        if (tensor.bytes) {
            const uint64_t each = from.bytes / static_cast<uint64_t>(from.rows);
            const uint64_t begin = static_cast<uint64_t>(strip.row) * each;
            b.raw.resize(rows * each);
            WEFT_TRY(tensor.bytes->file->ReadAt(tensor.bytes->offset + begin, b.raw));
            return file_.WriteAt(shard_.offsets[strip.tensor] + begin, b.raw);
        }
        b.raw.resize(rows * static_cast<size_t>(RowBytes(from.dtype, from.cols)));
        WEFT_TRY(source_.ReadRows(from, tensor.row_begin + strip.row, strip.rows, 0, from.cols,
                                  b.raw, nullptr));
        std::span<std::byte> out = b.raw;
        if (to != from.dtype || tensor.add != 0) {
            b.floats.resize(rows * static_cast<size_t>(from.cols));
            Decode(from.dtype, b.raw, b.floats, options_.level);
            if (tensor.add != 0) {
                for (float& value : b.floats) value += tensor.add;
            }
            WEFT_TRY(CheckValues(tensor, type, b.floats));
            b.out.resize(rows * static_cast<size_t>(RowBytes(to, from.cols)));
            Encode({to, from.cols, b.floats, {}, b.out}, options_.level);
            out = b.out;
        }
        // (A bias is a vector, but its elements are reordered like rows.)
        const auto row_bytes = static_cast<size_t>(RowBytes(to, IsVector(tensor) ? 1 : from.cols));
        if (tensor.pairs_of > 0) PairsToHalves(out, row_bytes, tensor.pairs_of, b.head);
        return file_.WriteAt(
            shard_.offsets[strip.tensor] + static_cast<uint64_t>(strip.row) * row_bytes, out);
    }

    Status CheckValues(const ExportTensor& tensor, SafeType type,
                       std::span<const float> values) const {
        const float most = type == SafeType::kF16 ? 65504.0f : 3.4e38f;
        for (const float value : values) {
            if (std::abs(value) <= most) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' has the value {}, which {} cannot represent",
                             source_.name(), tensor.from->name, value, SafeTypeName(type));
        }
        return {};
    }

    const ModelSource& source_;
    const Shard& shard_;
    const ExportOptions& options_;
    OutputFile& file_;
    std::mutex mutex_;
    size_t tensor_ = 0;
    int64_t row_ = 0;
    std::optional<Error> error_;
};

// ---- Files --------------------------------------------------------------------------------------

// Files that are written and not yet finished.
using NewFiles = std::vector<OutputFile>;

Status PutText(const std::string& path, std::string_view text, NewFiles& files) {
    WEFT_ASSIGN(OutputFile file, OutputFile::Create(path, text.size(), true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
    files.push_back(std::move(file));
    return {};
}

Status PutJson(const std::string& path, const Json& json, NewFiles& files) {
    return PutText(path, json.dump(2) + "\n", files);
}

Status WriteWeights(const ModelSource& source, std::vector<ExportTensor> tensors,
                    const std::string& folder, const ExportOptions& options, NewFiles& files) {
    const std::vector<Shard> shards = MakeShards(std::move(tensors), options);
    Json map = Json::object();
    uint64_t total = 0;
    for (const Shard& shard : shards) {
        WEFT_ASSIGN(OutputFile file,
                    OutputFile::Create(folder + "/" + shard.name, shard.bytes, true));
        WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(shard.header))));
        WEFT_TRY(ShardWriter(source, shard, options, file).Run());
        files.push_back(std::move(file));
        total += shard.bytes - shard.header.size();
        for (const ExportTensor& tensor : shard.tensors) map[tensor.name] = shard.name;
    }
    if (shards.size() == 1) return {};
    return PutJson(folder + "/model.safetensors.index.json",
                   {{"metadata", {{"total_size", total}}}, {"weight_map", map}}, files);
}

// Texts by file name.
using TextFiles = std::map<std::string, std::string>;

// The files of kCompanions, the file of the tokenizer, more chat templates, and the Python code of
// models and tokenizers that are not part of transformers ("auto_map" in the JSON files).
Result<TextFiles> ReadCompanions(const std::string& from) {
    std::set<std::string> names(std::begin(kCompanions), std::end(kCompanions));
    std::error_code failed;
    const auto tokens = tokenizer::FindTokenizerFile(from);
    if (tokens.ok()) names.insert(fs::path(*tokens).filename());
    for (fs::directory_iterator at(from, failed), end; !failed && at != end; at.increment(failed)) {
        if (at->path().extension() == ".py") names.insert(at->path().filename());
    }
    for (const std::string& name : tokenizer::FindMoreTemplates(from)) names.insert(name);
    TextFiles files;
    for (const std::string& name : names) {
        const fs::path file = fs::path(from) / name;
        if (!fs::is_regular_file(file, failed)) continue;
        WEFT_ASSIGN(files[name], ReadTextFile(file));
    }
    return files;
}

// If the model has several chat templates, adds them all as files, which transformers prefers to
// those of tokenizer_config.json. Metadata must not choose the path of a file.
Status AddTemplates(const Metadata& meta, TextFiles& files) {
    constexpr size_t kMostName = 64;
    const std::string key = "tokenizer.chat_template", before = key + ".";
    WEFT_ASSIGN(const std::string chat, meta.StringOr(key, ""));
    const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    for (const MetaEntry& entry : meta.entries()) {
        if (!entry.key.starts_with(before)) continue;
        const std::string_view name = entry.key.substr(before.size());
        if (name.empty() || name.size() > kMostName || !std::ranges::all_of(name, is_plain)) {
            continue;
        }
        WEFT_ASSIGN(files[fmt::format("{}/{}.jinja", tokenizer::kMoreTemplates, name)],
                    meta.String(entry.key));
        if (!chat.empty()) files["chat_template.jinja"] = chat;
    }
    return {};
}

// Only under the known names: metadata must not choose file names.
Result<TextFiles> KeptFiles(const ModelSource& source) {
    WEFT_ASSIGN(const tokenizer::KeptJson kept, ReadKeptTokenizer(source.meta()));
    WEFT_TRY(tokenizer::MakeTokenizer(kept));
    TextFiles files = {{"tokenizer.json", kept.json}};
    for (const char* name :
         {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
        const auto found = kept.beside.find(name);
        if (found != kept.beside.end()) files[name] = found->second;
    }
    WEFT_ASSIGN(const std::string chat, source.meta().StringOr("tokenizer.chat_template", ""));
    // (tokenizer_config.json may already have the template.)
    const auto text = files.find("tokenizer_config.json");
    WEFT_ASSIGN(const Config config,
                Config::Parse(text == files.end() ? "{}" : text->second, source.name()));
    if (!chat.empty() && !config.Has("chat_template")) files["chat_template.jinja"] = chat;
    WEFT_TRY(AddTemplates(source.meta(), files));
    return files;
}

Result<TextFiles> TokenizerFiles(const ModelSource& source) {
    const Metadata& meta = source.meta();
    if (!source.folder().empty()) return ReadCompanions(source.folder());
    if (!HasTokenizer(source)) return TextFiles();
    if (meta.Has(kKeptJsonKey)) return KeptFiles(source);
    WEFT_ASSIGN(const tokenizer::TokenizerData data, ReadTokenizer(meta));
    const auto tokenizer = tokenizer::TokenizerJson(data);
    if (!tokenizer.ok()) {
        return MakeError(tokenizer.error().code,
                         "{}: {}; write a GGUF file instead (--save-format gguf)", source.name(),
                         tokenizer.error().message);
    }
    WEFT_ASSIGN(const std::string chat, meta.StringOr("tokenizer.chat_template", ""));
    Json generation = GenerationConfigJson(ReadSamplingHints(source));
    if (data.bos >= 0) generation["bos_token_id"] = data.bos;
    Json ends = Json::array();
    for (const int32_t id : {data.eos, data.eot, data.eom}) {
        if (id >= 0 && std::ranges::find(ends, Json(id)) == ends.end()) ends.push_back(id);
    }
    if (!ends.empty()) generation["eos_token_id"] = ends;
    TextFiles files = {{"tokenizer.json", *tokenizer},
                       {"tokenizer_config.json", tokenizer::TokenizerConfigJson(data, chat)},
                       {"generation_config.json", generation.dump(2) + "\n"}};
    WEFT_TRY(AddTemplates(meta, files));
    return files;
}

// Adds one matrix per expert; the expert's number replaces the '*' in the name.
void AddExperts(const ExportTensor& all, std::vector<ExportTensor>& plan) {
    const int64_t experts = all.from->dims[2], rows = all.from->rows / experts;
    const size_t star = all.name.find('*');
    WEFT_CHECK(star != std::string::npos);
    for (int64_t e = 0; e < experts; ++e) {
        std::string name = all.name;
        name.replace(star, 1, std::to_string(e));
        plan.push_back({std::move(name), all.from, 0, e * rows, rows});
    }
}

// Names the tensors of one family.
class Naming {
  public:
    Naming(const ModelSource& source, const Family& family, int64_t head_dim)
        : source_(source), family_(family), head_dim_(head_dim), rules_(RulesOf(family)) {}

    // Adds the tensor's names to `plan`. Errors: kUnsupported if the folder has no such tensor.
    Status Add(const TensorInfo& tensor, std::vector<ExportTensor>& plan) const {
        const auto* end = std::ranges::find(kEnds, tensor.name, &End::gguf);
        if (end != std::end(kEnds)) {
            const std::string_view module = tensor.name == "token_embd.weight" ? family_.embedding
                                            : tensor.name.starts_with("output.")
                                                ? family_.output
                                                : family_.final_norm;
            ExportTensor named{fmt::format(fmt::runtime(end->hf), module), &tensor, 0, 0,
                               tensor.rows};
            if (end->hf.find('*') != end->hf.npos) {
                if (tensor.dim_count != 3) return NoPlace(source_, "tensor '" + tensor.name + "'");
                AddExperts(named, plan);
                return {};
            }
            plan.push_back(std::move(named));
            if (tensor.name == "output_norm.weight" && !family_.plain_final_norm) {
                plan.back().add = -family_.norm_add;
            }
            plan.back().matrix = tensor.name == "cls.output.weight";
            return {};
        }
        const auto split = SplitName(tensor.name);
        const RuleOf<std::string>* rule = split ? FindRule(rules_, *split) : nullptr;
        const bool experts = rule != nullptr && rule->form == Form::kExperts;
        if (rule == nullptr || (tensor.dim_count > 2) != experts || tensor.dim_count > 3) {
            return NoPlace(source_, "tensor '" + tensor.name + "'");
        }
        const std::string name =
            rule->form == Form::kVector ? rule->hf : rule->hf + "." + split->kind;
        ExportTensor out{fmt::format("model.layers.{}.{}", split->layer, name), &tensor, 0, 0,
                         tensor.rows};
        out.matrix = rule->form == Form::kRouter;
        out.turned = rule->form == Form::kTurned;
        out.routes = rule->form == Form::kRouter || rule->gguf.starts_with("exp_probs_b");
        if (rule->form == Form::kNorm && split->kind == "weight") out.add = -family_.norm_add;
        if (experts) {
            AddExperts(out, plan);
            return {};
        }
        const bool heads = rule->form == Form::kQuery || rule->form == Form::kKey;
        if (heads && family_.pairs) {
            const int64_t rows = tensor.dim_count == 1 ? tensor.cols : tensor.rows;
            if (head_dim_ % 2 != 0 || rows % head_dim_ != 0) {
                return NoPlace(source_, "tensor '" + tensor.name + "'");
            }
            out.pairs_of = head_dim_;
        }
        plan.push_back(std::move(out));
        return {};
    }

  private:
    const ModelSource& source_;
    const Family& family_;
    int64_t head_dim_;
    std::vector<RuleOf<std::string>> rules_;
};

// Names matrices that are rows of one matrix of the folder, and others that only adapters name.
class FusedNames {
  public:
    // Errors: kCorrupt: the numbers of heads do not fit together.
    static Result<FusedNames> Of(const ModelSource& source, const Family& family,
                                 int64_t head_dim) {
        FusedNames names(family, head_dim);
        if (family.adapted != nullptr) {
            WEFT_ASSIGN(names.adapted_, family.adapted(source));
        }
        for (const RuleOf<std::string>& rule : RulesOf(family)) {
            if (rule.gguf != "attn_kv_a_mqa") continue;
            names.kv_b_ = rule.hf.substr(0, rule.hf.rfind('.') + 1) + "kv_b_proj";
        }
        if (family.qkv.module.empty()) return names;
        const std::string count = fmt::format("{}.attention.head_count", family.architecture);
        WEFT_ASSIGN(const int64_t heads, source.meta().Int(count, 1, 1 << 16));
        WEFT_ASSIGN(const int64_t kv, source.meta().IntOr(count + "_kv", 1, heads, heads));
        const auto rows = RowsOf(family.qkv.order, heads, kv, head_dim);
        if (!rows.has_value() || (family.pairs && head_dim % 2 != 0)) {
            return MakeError(ErrorCode::kCorrupt, "{}: {} heads of {} rows do not fit {} KV heads",
                             source.name(), heads, head_dim, kv);
        }
        const int64_t q = heads * head_dim, k = kv * head_dim;
        names.qkv_ = {
            {"attn_q", rows->q, 0, q}, {"attn_k", rows->k, q, k}, {"attn_v", rows->v, q + k, k}};
        names.qkv_rows_ = q + 2 * k;
        return names;
    }

    // Whether it has added the tensor's names.
    bool Add(const ModelSource& source, const TensorInfo& tensor,
             std::vector<ExportTensor>& plan) const {
        const auto name = SplitName(tensor.name);
        if (!name || name->kind != "weight") return false;
        if (tensor.dim_count == 3) return AddHeads(source, tensor, *name, plan);
        return AddAdapted(source, tensor, *name, plan) || AddQkv(tensor, *name, plan) ||
               AddMlp(tensor, *name, plan);
    }

  private:
    struct Part {
        std::string_view module;
        RowRuns runs;
        int64_t begin, rows;  // in the attn_qkv of a GGUF file, which has all queries first
    };

    FusedNames(const Family& family, int64_t head_dim) : family_(&family), head_dim_(head_dim) {}

    static ExportTensor Named(const TensorInfo& tensor, const LayerName& name,
                              std::string_view module, const RowRuns& runs) {
        ExportTensor named{fmt::format("model.layers.{}.{}.weight", name.layer, module), &tensor};
        named.rows = tensor.rows;
        named.runs = runs;
        return named;
    }

    bool AddAdapted(const ModelSource& source, const TensorInfo& tensor, const LayerName& name,
                    std::vector<ExportTensor>& plan) const {
        bool any = false;
        for (const AdaptedPart& part : adapted_) {
            const int64_t rows = part.rows > 0 ? part.rows : tensor.rows;
            if (part.tensor != name.module || part.row_begin + rows > tensor.rows) continue;
            const RowRuns whole = {0, rows, rows};
            ExportTensor named =
                Named(tensor, name, part.module, part.runs.stride > 0 ? part.runs : whole);
            named.row_begin = part.row_begin;
            named.rows = rows;
            named.columns = part.columns;
            const std::string factor = tensor.name.substr(0, tensor.name.rfind('.')) + ".scale";
            if (source.FindTensor(factor) == nullptr) named.factor = part.factor;
            plan.push_back(std::move(named));
            any = true;
        }
        if (name.module == "attn_kv_b" && !kv_b_.empty()) {
            plan.push_back(Named(tensor, name, kv_b_, {0, tensor.rows, tensor.rows}));
            any = true;
        }
        return any;
    }

    // Latent attention has a stack of each head's transposed keys, and one of its values.
    bool AddHeads(const ModelSource& source, const TensorInfo& tensor, const LayerName& name,
                  std::vector<ExportTensor>& plan) const {
        const bool keys = name.module == "attn_k_b";
        if (kv_b_.empty() || (!keys && name.module != "attn_v_b")) return false;
        const auto find = [&](const char* module) {
            return source.FindTensor(fmt::format("blk.{}.{}.weight", name.layer, module));
        };
        const TensorInfo *k = find("attn_k_b"), *v = find("attn_v_b");
        if (k == nullptr || v == nullptr || k->dim_count != 3 || v->dim_count != 3) return false;
        const int64_t plain = k->cols, value = v->dims[1];
        const RowRuns runs =
            keys ? RowRuns{0, plain, plain + value} : RowRuns{plain, value, plain + value};
        plan.push_back(Named(tensor, name, kv_b_, runs));
        plan.back().keys = keys;
        return true;
    }

    bool AddQkv(const TensorInfo& tensor, const LayerName& name,
                std::vector<ExportTensor>& plan) const {
        const bool all = name.module == "attn_qkv" && tensor.rows == qkv_rows_;
        bool any = false;
        for (const Part& part : qkv_) {
            if (!all && (name.module != part.module || tensor.rows != part.rows)) continue;
            ExportTensor named = Named(tensor, name, family_->qkv.module, part.runs);
            named.rows = part.rows;
            named.row_begin = all ? part.begin : 0;
            named.pairs_of = family_->pairs && part.module != "attn_v" ? head_dim_ : 0;
            plan.push_back(std::move(named));
            any = true;
        }
        return any;
    }

    bool AddMlp(const TensorInfo& tensor, const LayerName& name,
                std::vector<ExportTensor>& plan) const {
        if (family_->gate_up.empty()) return false;
        std::string_view module = name.module;
        if (module.ends_with("_shexp")) module.remove_suffix(6);
        const int64_t rows = tensor.rows;
        if (module == "ffn_gate") {
            plan.push_back(Named(tensor, name, family_->gate_up, {0, rows, 2 * rows}));
        } else if (module == "ffn_up") {
            plan.push_back(Named(tensor, name, family_->gate_up, {rows, rows, 2 * rows}));
        } else if (module == "ffn_down") {
            plan.push_back(Named(tensor, name, family_->down, {0, rows, rows}));
        } else {
            return false;
        }
        return true;
    }

    const Family* family_;
    int64_t head_dim_;
    std::vector<Part> qkv_;
    int64_t qkv_rows_ = 0;
    std::vector<AdaptedPart> adapted_;
    std::string kv_b_;  // the module of latent attention that AddHeads divides; empty: none
};

// The family of the folder from which the model is, or could be.
Result<const Family*> NamingFamily(const ModelSource& source) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    const Family* family = FamilyOfArchitecture(architecture);
    if (const auto type = ExportType(source); type.ok()) {
        const Json json = {{"model_type", *type}};
        WEFT_ASSIGN(const Config config, Config::Parse(json.dump(), source.name()));
        const auto named = FindFamily(config);
        if (named.ok()) family = *named;
    }
    if (family == nullptr) return NoPlace(source, "the architecture '" + architecture + "'");
    // (GGUF files of OPT have the architecture of GPT-2, with Q, K and V apart.)
    const auto turns = [](const RuleOf<std::string>& rule) { return rule.form == Form::kTurned; };
    const bool other = source.folder().empty() && std::ranges::any_of(RulesOf(*family), turns) &&
                       source.FindTensor("blk.0.attn_q.weight") != nullptr;
    if (!other) return family;
    return MakeError(ErrorCode::kUnsupported,
                     "{}: a file of the architecture '{}' does not say which model of Hugging Face "
                     "it was made from. Use that model's folder",
                     source.name(), architecture);
}

}  // namespace

Result<std::optional<EndFactors>> EndFactorsOf(const ModelSource& source) {
    WEFT_ASSIGN(const Family* family, NamingFamily(source));
    EndFactors factors;
    factors.tied = source.FindTensor("output.weight") == nullptr;
    if (family->ends == nullptr) return std::optional(factors);
    if (source.folder().empty()) return std::optional<EndFactors>();
    WEFT_ASSIGN(const FolderConfig folder, ReadFolderConfig(source.folder()));
    WEFT_ASSIGN(const EndScales scales, family->ends(folder.config));
    // (Then the model has two matrices for the folder's one.)
    if (scales.embedding != scales.output && !factors.tied) {
        WEFT_ASSIGN(factors.tied, folder.config.BoolOr({"tie_word_embeddings"}, false));
    }
    if (source.FindTensor("token_embd.scale") == nullptr) factors.embedding = scales.embedding;
    if (source.FindTensor("output.scale") == nullptr) factors.output = scales.output;
    return std::optional(factors);
}

Result<LayerPath> LayerPathOf(const ModelSource& source) {
    WEFT_ASSIGN(const Family* family, NamingFamily(source));
    return LayerPath{fmt::format("{}.", family->path), std::string(family->layers)};
}

std::span<const char* const> OutputNames() {
    static constexpr const char* kNames[] = {
        "lm_head", "language_model.lm_head", "output", "head", "embed_out",
        "decoder", "output_projection"};
    return kNames;
}

Result<std::string> OutputModuleOf(const ModelSource& source) {
    WEFT_ASSIGN(const Family* family, NamingFamily(source));
    if (family->encoder || HasScoreHead(source)) return std::string();
    return std::string(family->output);
}

Result<std::vector<ExportTensor>> PlanExport(const ModelSource& source, std::string_view skip) {
    WEFT_ASSIGN(const Family* family, FamilyOf(source));
    WEFT_ASSIGN(const int64_t head_dim, HeadDimOf(source, *family));
    const Naming naming(source, *family, head_dim);
    std::vector<ExportTensor> plan;
    const bool scores = HasScoreHead(source);
    for (const TensorInfo& tensor : source.tensors()) {
        if (tensor.name.starts_with("rope_f")) continue;  // config.json has these factors
        if (scores && tensor.name.starts_with("output.")) continue;
        if (!skip.empty() && tensor.name.starts_with(skip)) continue;
        WEFT_TRY(naming.Add(tensor, plan));
    }
    return plan;
}

Result<std::vector<ExportTensor>> FolderNames(const ModelSource& source, std::string_view skip) {
    WEFT_ASSIGN(const Family* family, NamingFamily(source));
    const bool fused = !family->qkv.module.empty();
    int64_t head_dim = 0;
    if (family->pairs || fused) {
        WEFT_ASSIGN(head_dim, HeadDimOf(source, *family));
    }
    const std::string architecture(family->architecture);
    const Naming naming(source, *family, head_dim);
    WEFT_ASSIGN(const FusedNames parts, FusedNames::Of(source, *family, head_dim));
    std::vector<ExportTensor> names;
    // Adapters have the rows of these matrices in the folder's order.
    WEFT_ASSIGN(const bool reordered,
                source.meta().BoolOr(architecture + ".rope.rows_reordered", false));
    const auto is_reordered = [](const std::string& name) {
        return name.ends_with(".attn_q.weight") || name.ends_with(".attn_q_b.weight") ||
               name.ends_with(".attn_kv_a_mqa.weight");
    };
    for (const TensorInfo& tensor : source.tensors()) {
        if (tensor.name.starts_with(skip) || (reordered && is_reordered(tensor.name))) continue;
        if (parts.Add(source, tensor, names)) continue;
        const Status named = naming.Add(tensor, names);
        if (!named.ok() && named.error().code != ErrorCode::kUnsupported) return named.error();
    }
    return names;
}

namespace {

Status CheckOther(const ModelSource& source, const std::string& folder) {
    std::error_code ignored;
    if (source.folder().empty() || !fs::equivalent(folder, source.folder(), ignored)) return {};
    return MakeError(ErrorCode::kDenied,
                     "{}: this is the folder of the model itself. Choose another one", folder);
}

// Gives tensors the shapes that they have in the source's folder: [1, 64] of a vector.
Status KeepShapes(const ModelSource& source, std::vector<ExportTensor>& tensors) {
    if (source.folder().empty()) return {};
    const auto files = TensorFiles::Open(source.folder());
    if (!files.ok()) {  // not found: a configuration alone (--from-scratch)
        return files.error().code == ErrorCode::kNotFound ? Status() : Status(files.error());
    }
    for (ExportTensor& tensor : tensors) {
        const SafeTensor* const saved = files->Find(tensor.name);
        if (saved == nullptr) continue;
        int64_t elements = 1;  // (the format's reader has checked the product)
        for (const int64_t size : saved->shape) elements *= size;
        // (Packed weights have fewer.)
        if (elements == tensor.rows * tensor.from->cols) tensor.shape = saved->shape;
    }
    return {};
}

}  // namespace

Result<FolderPlan> PlanFolder(const ModelSource& source, const std::string& folder, SafeType type) {
    FolderPlan plan;
    WEFT_ASSIGN(plan.config, ExportConfig(source, type));
    WEFT_TRY(SetScoreConfig(source, plan.config));
    WEFT_ASSIGN(plan.tensors, PlanExport(source));
    WEFT_TRY(KeepShapes(source, plan.tensors));
    WEFT_ASSIGN(plan.files, TokenizerFiles(source));
    WEFT_ASSIGN(TextFiles modules, ModuleFiles(source));
    plan.files.merge(modules);
    for (const ExportTensor& tensor : plan.tensors) plan.bytes += BytesOf(tensor, type);
    for (const auto& [name, text] : plan.files) plan.bytes += text.size();
    WEFT_TRY(CheckOther(source, folder));
    return plan;
}

Result<FolderPlan> PlanCopy(const ModelSource& source, std::vector<ExportTensor> tensors,
                            const std::string& folder, SafeType type, bool untied) {
    WEFT_TRY(CheckOther(source, folder));
    FolderPlan plan;
    WEFT_ASSIGN(const Config config, Config::Read(source.folder() + "/config.json"));
    plan.config = config.json();
    std::vector<Json*> parts = {&plan.config};
    if (plan.config.contains("text_config")) parts.push_back(&plan.config["text_config"]);
    for (Json* const part : parts) {
        if (!part->is_object()) continue;
        part->erase("torch_dtype");
        (*part)["dtype"] = TypeWord(type);
        if (untied) (*part)["tie_word_embeddings"] = false;
    }
    plan.tensors = std::move(tensors);
    WEFT_ASSIGN(plan.files, TokenizerFiles(source));
    for (const ExportTensor& tensor : plan.tensors) plan.bytes += BytesOf(tensor, type);
    for (const auto& [name, text] : plan.files) plan.bytes += text.size();
    return plan;
}

namespace {

Status CheckEmpty(const std::string& folder) {
    std::error_code failed;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename();
        if (name.starts_with('.') || name.ends_with(".part")) continue;
        return MakeError(ErrorCode::kDenied,
                         "{}: the folder exists and has files, such as {}; --force replaces the "
                         "model in it",
                         folder, Shown(name));
    }
    return {};
}

// Removes what a killed export left, which takes the space of the new files.
void RemoveLeftParts(const std::string& folder) {
    std::error_code failed;
    std::vector<std::string> parts;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename();
        if (name.ends_with(".part") && IsExportedName(name)) parts.push_back(at->path().stem());
    }
    for (const std::string& name : parts) RemoveLeftPart(folder + "/" + name);
}

// Files of an older model, which would be read beside the new ones.
std::vector<std::string> StaleFiles(const std::string& folder, const NewFiles& files) {
    std::vector<std::string> stale;
    std::error_code failed;
    for (const std::string& name : tokenizer::FindMoreTemplates(folder)) {
        const std::string path = folder + "/" + name;
        if (std::ranges::find(files, path, &OutputFile::path) == files.end()) stale.push_back(path);
    }
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename(), path = folder + "/" + name;
        const bool is_new = std::ranges::find(files, path, &OutputFile::path) != files.end();
        if (IsExportedName(name) && !name.ends_with(".part") && !is_new) stale.push_back(path);
    }
    return stale;
}

}  // namespace

Status ExportFolder(const ModelSource& source, const std::string& folder,
                    const ExportOptions& options) {
    WEFT_ASSIGN(const FolderPlan plan, PlanFolder(source, folder, options.type));
    return ExportFolder(source, plan, folder, options);
}

Status ExportFolder(const ModelSource& source, const FolderPlan& plan, const std::string& folder,
                    const ExportOptions& options) {
    WEFT_CHECK(options.threads > 0 && options.shard_bytes > 0);
    std::vector<ExportTensor> tensors = plan.tensors;
    for (ExportTensor& tensor : tensors) {
        WEFT_ASSIGN(tensor.from, source.NeedTensor(tensor.from->name));
    }
    if (!options.replace) WEFT_TRY(CheckEmpty(folder));
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) {
        return MakeError(ErrorCode::kIo, "{}: cannot create the folder: {}", folder,
                         failed.message());
    }
    RemoveLeftParts(folder);
    WEFT_TRY(CheckSpace(folder + "/config.json", plan.bytes));
    NewFiles files;
    WEFT_TRY(WriteWeights(source, std::move(tensors), folder, options, files));
    for (const auto& [name, text] : plan.files) {
        fs::create_directories(fs::path(folder + "/" + name).parent_path(), failed);
        WEFT_TRY(PutText(folder + "/" + name, text, files));
    }
    WEFT_TRY(PutJson(folder + "/config.json", plan.config, files));
    return FinishTogether(files, StaleFiles(folder, files));
}

bool IsExportedName(std::string_view name) {
    constexpr std::string_view kBegin = "model", kEnd = ".safetensors";
    if (name.ends_with(".part")) name.remove_suffix(5);
    // (model-00001-of-00002.safetensors, but not a user's model-ema.safetensors)
    const bool weights =
        name.starts_with(kBegin) && name.ends_with(kEnd) &&
        name.substr(0, name.size() - kEnd.size()).find_first_not_of("-0123456789of", 5) ==
            name.npos;
    return weights || name == "config.json" || name == "model.safetensors.index.json" ||
           name == "modules.json" || name == "sentencepiece.bpe.model" ||
           name.ends_with(".tiktoken") ||
           std::ranges::find(kCompanions, name) != std::end(kCompanions);
}

}  // namespace weft::model_files::hf
