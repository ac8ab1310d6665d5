#include "train/config/ds_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "base/nearest_word.h"
#include "model_files/hf/json.h"
#include "train/config/ds_config.h"

namespace weft::train {
namespace {

using Json = nlohmann::json;
using model_files::hf::Shown;

constexpr int kMostDepth = 32;
constexpr size_t kMostWarnings = 200;

struct Refused {
    std::string what;
};

// Aliases of keys that DeepSpeed also accepts.
struct Alias {
    const char *section, *name, *stands_for;
};
constexpr Alias kAliases[] = {
    {"", "bfloat16", "bf16"},
    {"zero_optimization", "prefetch_bucket_size", "stage3_prefetch_bucket_size"},
    {"zero_optimization", "param_persistence_threshold", "stage3_param_persistence_threshold"},
    {"zero_optimization", "max_live_parameters", "stage3_max_live_parameters"},
    {"zero_optimization", "max_reuse_distance", "stage3_max_reuse_distance"},
    {"zero_optimization", "model_persistence_threshold", "stage3_model_persistence_threshold"},
    {"zero_optimization", "module_granularity_threshold", "stage3_module_granularity_threshold"},
    {"zero_optimization", "use_all_reduce_for_fetch_params",
     "stage3_use_all_reduce_for_fetch_params"},
    {"zero_optimization", "allgather_sequential", "stage3_allgather_sequential"},
    {"zero_optimization", "partition_stream_chunk_size", "stage3_partition_stream_chunk_size"},
    {"zero_optimization", "cpu_offload_param", "cpu_offload_params"},
    {"zero_optimization", "gather_16bit_weights_on_model_save",
     "stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization", "stage3_gather_fp16_weights_on_model_save",
     "stage3_gather_16bit_weights_on_model_save"},
};

void ApplyAliases(Json& json) {
    for (const Alias& alias : kAliases) {
        Json* section = &json;
        if (*alias.section != 0) {
            const auto found = json.find(alias.section);
            if (found == json.end()) continue;
            section = &*found;
        }
        if (!section->is_object()) continue;
        const auto old = section->find(alias.name);
        if (old == section->end() || section->contains(alias.stands_for)) continue;
        Json value = std::move(*old);
        section->erase(old);
        (*section)[alias.stands_for] = std::move(value);
    }
}

const DsKey* FindKey(std::string_view path) {
    const auto keys = DsKeys();
    const auto found = std::ranges::find(keys, path, &DsKey::path);
    return found == keys.end() ? nullptr : &*found;
}

std::string_view LastOf(std::string_view path) {
    return path.substr(path.rfind('.') + 1);
}

// The known key whose last part is most similar to `path`'s; keys of the same section win.
std::string_view Nearest(std::string_view path) {
    const std::string_view name = LastOf(path).substr(0, 100);
    const std::string_view section = path.substr(0, path.size() - LastOf(path).size());
    std::string_view best;
    size_t least = std::max<size_t>(2, name.size() / 3) * 2 + 1;
    for (const DsKey& key : DsKeys()) {
        const bool elsewhere =
            key.path.substr(0, key.path.size() - LastOf(key.path).size()) != section;
        const size_t distance = 2 * EditDistance(name, LastOf(key.path)) + (elsewhere ? 1 : 0);
        if (distance < least) {
            least = distance;
            best = key.path;
        }
    }
    return best;
}

std::string_view TypeName(const Json& value) {
    if (value.is_string()) return "a string";
    if (value.is_boolean()) return "true or false";
    if (value.is_number()) return "a number";
    if (value.is_array()) return "a list";
    return value.is_object() ? "an object" : "null";
}

// Replaces comments and commas before a closing bracket, which DeepSpeed's parser (Hjson) accepts,
// by blanks.
std::string WithoutHjson(std::string_view given) {
    std::string text(given);
    size_t comma = text.npos;  // with only blanks and comments after it
    for (size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        const std::string_view rest = std::string_view(text).substr(at);
        const bool line = c == '#' || rest.starts_with("//"), block = rest.starts_with("/*");
        if (line || block) {
            const size_t end = line ? rest.find('\n') : rest.find("*/", 2);
            if (block && end == rest.npos) return text;
            const size_t size = line ? std::min(end, rest.size()) : end + 2;
            std::ranges::replace_if(
                std::span(text).subspan(at, size), [](char b) { return b != '\n'; }, ' ');
            at += size - 1;
        } else if (c == '"') {
            while (++at < text.size() && text[at] != '"') at += text[at] == '\\' ? 1 : 0;
            comma = text.npos;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            if ((c == '}' || c == ']') && comma != text.npos) text[comma] = ' ';
            comma = c == ',' ? at : text.npos;
        }
    }
    return text;
}

class Checker {
  public:
    Checker(const std::string& where, std::vector<std::string>& warnings)
        : where_(where), warnings_(warnings) {}

    Status Section(const Json& json, const std::string& base) {
        for (const auto& [name, value] : json.items()) {
            WEFT_TRY(Key(base.empty() ? name : base + "." + name, name, value));
        }
        return {};
    }

  private:
    void Warn(std::string text) {
        if (warnings_.size() < kMostWarnings) warnings_.push_back(std::move(text));
    }

    Error Wrong(std::string_view path, const Json& value, std::string_view expected) const {
        return MakeError(ErrorCode::kCorrupt, "{}: {} is {} ({}); expected {}", where_, path,
                         TypeName(value), Shown(value.dump(-1, ' ', true)), expected);
    }

    Status Key(const std::string& path, const std::string& name, const Json& value) {
        const DsKey* key = FindKey(path);
        if (key == nullptr || name.empty() || name.find('.') != name.npos) {
            const std::string_view nearest = Nearest(path);
            Warn(nearest.empty()
                     ? fmt::format("{}: not a key of DeepSpeed's; no effect", Shown(path))
                     : fmt::format("{}: not a key of DeepSpeed's; no effect. Is {} meant?",
                                   Shown(path), nearest));
            return {};
        }
        if (value.is_null()) return {};
        if (value == "auto" && key->type != DsType::kSection && key->type != DsType::kWhole) {
            if (!key->fills_auto)
                Warn(fmt::format(
                    "{}: \"auto\" has no source for a value here; Weft uses the default", path));
            return {};
        }
        WEFT_TRY(Type(*key, path, value));
        if (key->type == DsType::kSection) return Section(value, path);
        return Use(*key, path, value);
    }

    Status Type(const DsKey& key, const std::string& path, const Json& value) {
        switch (key.type) {
            case DsType::kSection:
            case DsType::kWhole:
                return value.is_object() ? Status() : Wrong(path, value, "an object");
            case DsType::kBool:
                return value.is_boolean() ? Status() : Wrong(path, value, "true or false");
            case DsType::kString:
                return value.is_string() ? Status() : Wrong(path, value, "a string");
            case DsType::kInt: return Number(key, path, value, true);
            case DsType::kNumber: return Number(key, path, value, false);
            case DsType::kNumbers: {
                if (!value.is_array()) return Wrong(path, value, "a list of numbers");
                for (const Json& each : value) WEFT_TRY(Number(key, path, each, false));
                return {};
            }
            case DsType::kAny: return {};
        }
        return {};
    }

    // An integer may be written as 2e8.
    Status Number(const DsKey& key, const std::string& path, const Json& value, bool whole) {
        const double number = value.is_number() ? value.get<double>() : NAN;
        const bool fits = std::isfinite(number) && number >= key.least && number <= key.most &&
                          (!whole || number == std::floor(number));
        if (fits || key.use == DsUse::kRefused) {
            return value.is_number() ? Status() : Wrong(path, value, "a number");
        }
        return Wrong(path, value,
                     fmt::format("a {}number from {:g} to {:g}", whole ? "whole " : "", key.least,
                                 key.most));
    }

    // Whether the value of an ineffective or refused key requests nothing.
    static bool RequestsNothing(const Json& value) {
        if (value.is_boolean()) return !value.get<bool>();
        if (value.is_object()) {
            const auto enabled = value.find("enabled");
            return value.empty() || (enabled != value.end() && *enabled == false);
        }
        return false;
    }
    static bool IsHarmless(const DsKey& key, const Json& value) {
        if (RequestsNothing(value)) return true;
        if (key.path == "gradient_allreduce_op") return value == "mean";
        if (key.path == "sequence_parallel_size") return value == 1;
        return value.is_number() && value.get<double>() == 0;
    }

    Status Use(const DsKey& key, const std::string& path, const Json& value) {
        switch (key.use) {
            case DsUse::kMapped:
            case DsUse::kSame: return {};
            case DsUse::kWarned:
                if (!RequestsNothing(value)) Warn(fmt::format("{}: no effect: {}", path, key.here));
                return {};
            case DsUse::kRefused:
                if (IsHarmless(key, value)) return {};
                return MakeError(ErrorCode::kUnsupported, "{}: {} is not supported: {}", where_,
                                 path, key.here);
        }
        return {};
    }

    const std::string& where_;
    std::vector<std::string>& warnings_;
};

}  // namespace

Result<Json> ParseDsJson(std::string_view given, const std::string& where) {
    const std::string text = WithoutHjson(given);
    std::vector<std::set<std::string>> open;
    const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > kMostDepth) throw Refused{fmt::format("nested deeper than {}", kMostDepth)};
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key) {
            const std::string& name = value.get_ref<const std::string&>();
            if (!open.back().insert(name).second) {
                throw Refused{fmt::format("the key '{}' is there twice", Shown(name))};
            }
        }
        return true;
    };
    try {
        Json json = Json::parse(text.begin(), text.end(), check);
        if (json.is_object()) {
            ApplyAliases(json);
            return json;
        }
        return MakeError(ErrorCode::kCorrupt, "{}: {}; expected an object", where, TypeName(json));
    } catch (const Refused& refused) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}", where, refused.what);
    } catch (const std::exception& error) {
        const std::string_view what = error.what();  // "[json.exception...] parse error ..."
        const size_t words = what.find("] ");
        return MakeError(ErrorCode::kCorrupt, "{}: not valid JSON: {}", where,
                         Shown(what.substr(words == what.npos ? 0 : words + 2)));
    }
}

Status CheckDsKeys(const Json& json, const std::string& where, std::vector<std::string>& warnings) {
    return Checker(where, warnings).Section(json, "");
}

const Json* FindDsKey(const Json& json, std::string_view path) {
    const Json* at = &json;
    while (!path.empty()) {
        const size_t dot = std::min(path.find('.'), path.size());
        if (!at->is_object()) return nullptr;
        const auto found = at->find(path.substr(0, dot));
        if (found == at->end() || found->is_null()) return nullptr;
        at = &*found;
        path.remove_prefix(std::min(dot + 1, path.size()));
    }
    return at;
}

}  // namespace weft::train
