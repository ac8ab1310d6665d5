#include "engine/rank/expert_use.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/home_folder.h"
#include "base/json.h"
#include "base/output_file.h"

namespace weft::engine {
namespace {

constexpr int kVersion = 1;
constexpr uint64_t kMostFileBytes = 16 << 20;
constexpr int64_t kMostLayers = 4096;
constexpr size_t kMostExperts = 4096;
constexpr float kMostUses = 1e12f;

std::optional<int64_t> LayerNumber(std::string_view text) {
    int64_t layer = -1;
    const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
    const bool whole = error == std::errc() && at == text.data() + text.size();
    return whole && layer >= 0 && layer < kMostLayers ? std::optional(layer) : std::nullopt;
}

// Layer of a weight of experts, "blk.3.ffn_up_exps.weight".
std::optional<int64_t> LayerOf(const program::Value& weight) {
    constexpr std::string_view kPrefix = "blk.";
    const std::string_view name = weight.name;
    if (!name.starts_with(kPrefix)) return std::nullopt;
    return LayerNumber(
        name.substr(kPrefix.size(), name.find('.', kPrefix.size()) - kPrefix.size()));
}

// {}: not a list of counts.
std::vector<float> CountsIn(const nlohmann::json& list) {
    std::vector<float> counts;
    if (!list.is_array() || list.size() > kMostExperts) return {};
    for (const nlohmann::json& one : list) {
        if (!one.is_number()) return {};
        const auto count = one.get<float>();
        if (!(count >= 0 && count <= kMostUses)) return {};
        counts.push_back(count);
    }
    return counts;
}

}  // namespace

std::string ExpertUsePath(const std::string& fingerprint) {
    const std::string folder = CacheFolder();
    return folder.empty() ? "" : folder + "/expert_use/" + fingerprint + ".json";
}

ExpertCounts LoadExpertUse(const std::string& path) {
    const Result<std::string> text = ReadTextFile(path, kMostFileBytes);
    if (!text.ok()) return {};
    const nlohmann::json json = JsonOrDiscarded(*text);
    if (!json.is_object() || json.value("version", nlohmann::json()) != kVersion) return {};
    const auto layers = json.find("layers");
    if (layers == json.end() || !layers->is_object()) return {};
    ExpertCounts counts;
    for (const auto& [key, list] : layers->items()) {
        const std::optional<int64_t> layer = LayerNumber(key);
        std::vector<float> own = CountsIn(list);
        if (!layer || own.empty()) return {};
        counts[*layer] = std::move(own);
    }
    return counts;
}

Status SaveExpertUse(const std::string& path, const ExpertCounts& counts, int64_t first_expert) {
    // (Ranks of one host, with other experts each, end at the same time.)
    WEFT_ASSIGN(const FileLock lock, FileLock::Take(path));
    ExpertCounts all = LoadExpertUse(path);
    for (const auto& [layer, own] : counts) {
        std::vector<float>& whole = all[layer];
        whole.resize(std::max(whole.size(), static_cast<size_t>(first_expert) + own.size()));
        std::ranges::copy(own, whole.begin() + first_expert);
    }
    nlohmann::json layers = nlohmann::json::object();
    for (const auto& [layer, list] : all) layers[std::to_string(layer)] = list;
    const nlohmann::json json = {{"version", kVersion}, {"layers", layers}};
    return ReplaceFile(path, json.dump());
}

ExpertCounts CountsOf(const program::Program& program, std::span<const backend::ExpertUse> uses) {
    ExpertCounts counts;
    for (const backend::ExpertUse& one : uses) {
        const auto layer = LayerOf(program.value(one.weight));
        if (layer) counts[*layer] = one.uses;
    }
    return counts;
}

std::vector<backend::ExpertUse> UsesOf(const program::Program& program, const ExpertCounts& counts,
                                       int64_t first_expert) {
    std::vector<backend::ExpertUse> uses;
    for (const program::Op& op : program.ops) {
        if (op.kind() != program::OpKind::kExpertSum) continue;
        const program::ValueId weight = program::WeightOf(op);
        const auto layer = LayerOf(program.value(weight));
        const auto found = layer ? counts.find(*layer) : counts.end();
        if (found == counts.end()) continue;
        const auto experts = static_cast<size_t>(program.value(weight).shape[0]);
        const auto first = static_cast<size_t>(first_expert);
        if (found->second.size() < first + experts) continue;
        const auto begin = found->second.begin() + first_expert;
        uses.push_back({weight, {begin, begin + static_cast<ptrdiff_t>(experts)}});
    }
    return uses;
}

}  // namespace weft::engine
