#include "base/field_codec.h"

#include <algorithm>

#include "base/printable.h"
#include "base/utf8.h"

namespace weft {
namespace {

constexpr size_t kMostShown = 60;  // bytes of a value in an error

std::string ShownValue(const nlohmann::json& value) {
    if (value.is_array()) return fmt::format("a list of {} items", value.size());
    if (value.is_object()) return "an object";
    std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
    return Printable(text);
}

}  // namespace

std::string FieldWriter::Text() const {
    return out_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json FieldWriter::PathJson(const std::string& path) {
    if (IsUtf8(path)) return path;
    nlohmann::json bytes = nlohmann::json::array();
    for (const char byte : path) bytes.push_back(static_cast<uint8_t>(byte));
    return bytes;
}

nlohmann::json FieldWriter::PathJson(const std::vector<std::string>& paths) {
    nlohmann::json list = nlohmann::json::array();
    for (const std::string& path : paths) list.push_back(PathJson(path));
    return list;
}

FieldReader::FieldReader(std::string_view what, const nlohmann::json& in, const FolderLimit& limit)
    : what_(what), in_(in), limit_(limit) {
    if (in.is_object()) return;
    status_ =
        MakeError(ErrorCode::kCorrupt, "{}: expected a JSON object, not {}", what, ShownValue(in));
}

const nlohmann::json* FieldReader::Find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = in_.find(name);
    if (found != in_.end()) return &*found;
    status_ = MakeError(ErrorCode::kCorrupt, "{}: no field '{}'", what_, name);
    return nullptr;
}

void FieldReader::Refuse(const char* name, const nlohmann::json& value, std::string_view expected) {
    status_ = MakeError(ErrorCode::kCorrupt, "{}: '{}' is {}; expected {}", what_, name,
                        ShownValue(value), expected);
}

void FieldReader::CheckPath(const Result<std::string>& path) {
    if (!status_.ok()) return;
    status_ = path.ok() ? limit_.Check(*path) : Status(path.error());
}

void FieldReader::Kind(const char* kind) {
    const nlohmann::json* field = Find("kind");
    if (field != nullptr && *field != kind) Refuse("kind", *field, kind);
}

bool FieldReader::ReadPath(const nlohmann::json& in, std::string& path) {
    std::vector<uint8_t> bytes;
    if (!in.is_array()) return Read(in, path);
    if (!Read(in, bytes) || std::ranges::count(bytes, 0) > 0) return false;
    path.assign(bytes.begin(), bytes.end());
    return true;
}

bool FieldReader::ReadPath(const nlohmann::json& in, std::vector<std::string>& paths) {
    if (!in.is_array()) return false;
    paths.resize(in.size());
    for (size_t i = 0; i < paths.size(); ++i) {
        if (!ReadPath(in[i], paths[i])) return false;
    }
    return true;
}

bool FieldReader::Read(const nlohmann::json& in, bool& value) {
    if (!in.is_boolean()) return false;
    value = in.get<bool>();
    return true;
}

bool FieldReader::Read(const nlohmann::json& in, std::string& value) {
    if (!in.is_string()) return false;
    value = in.get_ref<const std::string&>();
    return true;
}

std::string KindOfMessage(std::string_view text) {
    const nlohmann::json json = JsonOrDiscarded(text);
    const auto kind = json.is_object() ? json.find("kind") : json.end();
    return json.is_object() && kind != json.end() && kind->is_string() ? kind->get<std::string>()
                                                                       : "";
}

}  // namespace weft
