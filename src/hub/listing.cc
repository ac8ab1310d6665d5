#include "hub/listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "hub/spec.h"

namespace weft::hub {
namespace {

using nlohmann::json;

constexpr uint64_t kMostFileBytes = 1ull << 50;
constexpr int kMostDepth = 32;

bool IsHex(std::string_view text, size_t digits) {
    return text.size() == digits && std::ranges::all_of(text, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

const std::string* Text(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) return nullptr;
    return found->get_ptr<const std::string*>();
}

// Returns false if the value is not a size.
bool Size(const json& object, const char* key, uint64_t& size) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) return false;
    size = found->get<uint64_t>();
    return size <= kMostFileBytes;
}

// Parses with the nesting limit of these documents.
json Parsed(std::string_view text) {
    return JsonOrDiscarded(text, {.depth = kMostDepth});
}

Error Bad(const std::string& source, std::string_view what, std::string_view shown) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} '{}'. Is this a Hugging Face Hub?", source, what,
                     Shown(shown));
}

Result<RepoFile> ParseFile(const json& entry, const std::string& source) {
    RepoFile file;
    const std::string* path = Text(entry, "path");
    if (path == nullptr) return Bad(source, "an entry without a path:", entry.type_name());
    if (!IsSafePath(*path)) {
        return Bad(source, "refused: the listing has a path outside its folder:", *path);
    }
    file.path = *path;
    const std::string* oid = Text(entry, "oid");
    if (!Size(entry, "size", file.bytes)) return Bad(source, "no usable size of", file.path);
    const auto lfs = entry.find("lfs");
    if (lfs != entry.end() && lfs->is_object()) {
        file.large = true;
        oid = Text(*lfs, "oid");
        if (!Size(*lfs, "size", file.bytes)) return Bad(source, "no usable size of", file.path);
    }
    if (oid == nullptr || !IsHex(*oid, file.large ? 64 : 40)) {
        return Bad(source, "no usable hash of", file.path);
    }
    file.hash = *oid;
    return file;
}

}  // namespace

std::string Shown(std::string_view text, size_t most) {
    std::string shown;
    for (const char c : text.substr(0, most)) {
        shown += c >= 32 && c < 127 ? c : '?';
    }
    if (text.size() > most) shown += "...";
    return shown;
}

Result<std::string> ParseCommit(std::string_view text, const std::string& source) {
    const json parsed = Parsed(text);
    const std::string* sha = parsed.is_object() ? Text(parsed, "sha") : nullptr;
    if (sha != nullptr && IsCommit(*sha)) return *sha;
    return Bad(source, "no commit in the answer", text.substr(0, 60));
}

Status ParseTreePage(std::string_view text, const std::string& source,
                     std::vector<RepoFile>& files) {
    const json parsed = Parsed(text);
    if (!parsed.is_array()) return Bad(source, "not a list of files:", text.substr(0, 60));
    std::set<std::string_view> known;
    for (const RepoFile& file : files) known.insert(file.path);
    std::vector<RepoFile> found;
    for (const json& entry : parsed) {
        if (!entry.is_object()) return Bad(source, "not a file:", entry.type_name());
        const std::string* type = Text(entry, "type");
        if (type == nullptr) return Bad(source, "an entry without a type", "");
        if (*type != "file") continue;  // the listing includes the files of directories
        WEFT_ASSIGN(RepoFile file, ParseFile(entry, source));
        found.push_back(std::move(file));
        if (found.size() + files.size() > kMostFiles) {
            return MakeError(ErrorCode::kUnsupported, "{}: more than {} files", source, kMostFiles);
        }
    }
    for (const RepoFile& file : found) {
        if (!known.insert(file.path).second) return Bad(source, "listed twice:", file.path);
    }
    known.clear();
    std::ranges::move(found, std::back_inserter(files));
    return {};
}

std::string NextPage(std::string_view header) {
    // <URL>; rel="next", <URL>; rel="..."
    for (size_t at = 0; (at = header.find('<', at)) != header.npos;) {
        const size_t end = header.find('>', at);
        if (end == header.npos) return {};
        const size_t next = header.find('<', end);
        const std::string_view rest = header.substr(end, next == header.npos ? next : next - end);
        if (rest.find("rel=\"next\"") != rest.npos || rest.find("rel=next") != rest.npos) {
            return std::string(header.substr(at + 1, end - at - 1));
        }
        at = end;
    }
    return {};
}

Result<std::vector<std::string>> ParseShardIndex(std::string_view text, const std::string& source) {
    // One member per tensor in one object: DeepSeek-V3 has 91,991.
    const json parsed = JsonOrDiscarded(
        text, {.depth = kMostDepth, .values = size_t{1} << 22, .keys = size_t{1} << 20});
    if (!parsed.is_object()) return Bad(source, "not an index of shards:", text.substr(0, 60));
    const auto map = parsed.find("weight_map");
    if (map == parsed.end() || !map->is_object()) return Bad(source, "no weight_map", "");
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) {
        const std::string* name = file.get_ptr<const std::string*>();
        if (name == nullptr || !IsSafePath(*name) || name->find('/') != name->npos) {
            return Bad(source, "not the name of a shard: that of", tensor);
        }
        names.insert(*name);
    }
    return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace weft::hub
