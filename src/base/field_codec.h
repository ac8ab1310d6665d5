// A message between ranks as a JSON object. One list of fields writes, reads and checks it.
//
//     constexpr auto kJobFields = [](auto& job, auto& visit) {
//         visit("model", job.model);
//         visit("tp", job.tp, FieldRange{0, 1024});
//         visit.Named("overlap", job.overlap, OverlapName, ParseOverlap);
//     };
//     const std::string text = EncodeFields(job, kJobFields);
//     WEFT_TRY(DecodeFields("job from rank 0", text, kJobFields, job));
//
// A field is a bool, an integer, a floating-point number, a string, or a vector of these. Fields
// that name files of the receiver are declared with visit.Path, and DecodeFields checks them. The
// message may hold other fields; DecodeFields ignores them.
// Text from a peer is hostile: each field must be there, have its JSON type, and fit both its C++
// type and its range. Errors: kCorrupt, with the message, the field, its value and the range;
// kDenied for a path outside of the receiver's folders.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/folder_limit.h"
#include "base/json.h"
#include "base/result.h"

namespace weft {

// The least and the largest value of a number, or of each number of a vector.
struct FieldRange {
    double least, most;
};

class FieldWriter {
  public:
    template <typename T>
    void operator()(const char* name, const T& value, FieldRange = {}) {
        out_[name] = value;
    }
    // Sets the kind of the message, for receivers that expect messages of several kinds.
    void Kind(const char* kind) { out_["kind"] = kind; }
    template <typename T, typename PathOf>
    void Path(const char* name, const T& value, const PathOf&) {
        Path(name, value);
    }
    // A path, or a list of them. Any bytes may be in a path.
    template <typename T>
    void Path(const char* name, const T& value) {
        out_[name] = PathJson(value);
    }
    // Writes an enumerator as its name.
    template <typename T, typename NameOf, typename Parse>
    void Named(const char* name, const T& value, const NameOf& name_of, const Parse&) {
        out_[name] = std::string(name_of(value));
    }
    // Writes a list of structs; `fields` is the list of fields of such a struct.
    template <typename T, typename Fields>
    void List(const char* name, const std::vector<T>& list, const Fields& fields) {
        nlohmann::json& items = out_[name] = nlohmann::json::array();
        for (const T& item : list) {
            FieldWriter writer;
            fields(item, writer);
            items.push_back(std::move(writer.out_));
        }
    }
    // The message as JSON text. Bytes that are not UTF-8 become U+FFFD.
    std::string Text() const;

  private:
    // A path that is not UTF-8 becomes the list of its bytes.
    static nlohmann::json PathJson(const std::string& path);
    static nlohmann::json PathJson(const std::vector<std::string>& paths);

    nlohmann::json out_ = nlohmann::json::object();
};

class FieldReader {
  public:
    // what: names the message in errors. `in` and `limit` must outlive this object.
    FieldReader(std::string_view what, const nlohmann::json& in, const FolderLimit& limit);

    template <typename T>
    void operator()(const char* name, T& value) {
        const nlohmann::json* field = Find(name);
        if (field != nullptr && !Read(*field, value)) Refuse(name, *field, TypeText<T>());
    }
    template <typename T>
    void operator()(const char* name, T& value, FieldRange range) {
        const nlohmann::json* field = Find(name);
        if (field == nullptr) return;
        if (!Read(*field, value) || !IsWithin(value, range)) {
            Refuse(name, *field,
                   fmt::format("{} from {} to {}", TypeText<T>(), range.least, range.most));
        }
    }
    void Kind(const char* kind);
    // A path, or a list of them. path_of: returns the path that a value means, as a
    // Result<std::string>; "": no file.
    template <typename T, typename PathOf>
    void Path(const char* name, T& value, const PathOf& path_of) {
        const nlohmann::json* field = Find(name);
        if (field != nullptr && !ReadPath(*field, value)) Refuse(name, *field, TypeText<T>());
        if (limit_.folders().empty()) return;
        if constexpr (IsVector<T>::value) {
            for (const std::string& item : value) CheckPath(path_of(item));
        } else {
            CheckPath(path_of(value));
        }
    }
    template <typename T>
    void Path(const char* name, T& value) {
        Path(name, value, [](const std::string& path) { return Result<std::string>(path); });
    }
    // parse: takes a string_view and returns an optional or a Result.
    template <typename T, typename NameOf, typename Parse>
    void Named(const char* name, T& value, const NameOf&, const Parse& parse) {
        const nlohmann::json* field = Find(name);
        std::string text;
        if (field == nullptr) return;
        if (!Read(*field, text)) return Refuse(name, *field, "a string");
        auto parsed = parse(std::string_view(text));
        if (!HasValue(parsed)) return Refuse(name, *field, "a known name");
        value = *std::move(parsed);
    }
    template <typename T, typename Fields>
    void List(const char* name, std::vector<T>& list, const Fields& fields) {
        const nlohmann::json* field = Find(name);
        if (field == nullptr) return;
        if (!field->is_array()) return Refuse(name, *field, "a list");
        list.clear();
        for (const nlohmann::json& item : *field) {
            FieldReader reader(what_, item, limit_);
            fields(list.emplace_back(), reader);
            if (status_.ok()) status_ = reader.status_;
        }
    }
    // The first error.
    const Status& status() const { return status_; }

  private:
    template <typename T>
    struct IsVector : std::false_type {};
    template <typename T>
    struct IsVector<std::vector<T>> : std::true_type {};

    template <typename T>
    static std::string TypeText() {
        if constexpr (IsVector<T>::value) {
            return "a list, each item " + TypeText<typename T::value_type>();
        } else if constexpr (std::is_same_v<T, bool>) {
            return "true or false";
        } else if constexpr (std::is_integral_v<T>) {
            return fmt::format("an integer of {} bits", sizeof(T) * 8);
        } else if constexpr (std::is_floating_point_v<T>) {
            return "a number";
        } else {
            return "a string";
        }
    }
    // Reads what FieldWriter::PathJson wrote.
    static bool ReadPath(const nlohmann::json& in, std::string& path);
    static bool ReadPath(const nlohmann::json& in, std::vector<std::string>& paths);
    static bool Read(const nlohmann::json& in, bool& value);
    static bool Read(const nlohmann::json& in, std::string& value);
    template <typename T>
    static bool Read(const nlohmann::json& in, T& value) {
        if constexpr (std::is_integral_v<T>) {
            if (!in.is_number_integer()) return false;
            const auto whole = in.get<int64_t>();
            const auto large = in.get<uint64_t>();
            value = static_cast<T>(large);
            return in.is_number_unsigned() ? std::in_range<T>(large) : std::in_range<T>(whole);
        } else {
            static_assert(std::is_floating_point_v<T>);
            if (!in.is_number()) return false;
            const auto number = in.get<double>();
            if (!(std::abs(number) <= std::numeric_limits<T>::max())) return false;
            value = static_cast<T>(number);
            return true;
        }
    }
    template <typename T>
    static bool Read(const nlohmann::json& in, std::vector<T>& value) {
        if (!in.is_array()) return false;
        value.resize(in.size());
        for (size_t i = 0; i < value.size(); ++i) {
            if (!Read(in[i], value[i])) return false;
        }
        return true;
    }
    template <typename T>
    static bool IsWithin(const T& value, FieldRange range) {
        if constexpr (IsVector<T>::value) {
            for (const auto& item : value) {
                if (!IsWithin(item, range)) return false;
            }
            return true;
        } else {
            const auto number = static_cast<double>(value);
            return number >= range.least && number <= range.most;
        }
    }
    template <typename T>
    static bool HasValue(const T& parsed) {
        if constexpr (requires { parsed.ok(); })
            return parsed.ok();
        else
            return parsed.has_value();
    }
    // Returns null after an earlier error, or if the field is missing, which is an error.
    const nlohmann::json* Find(const char* name);
    void Refuse(const char* name, const nlohmann::json& value, std::string_view expected);
    void CheckPath(const Result<std::string>& path);

    const std::string_view what_;
    const nlohmann::json& in_;
    const FolderLimit& limit_;
    Status status_;
};

template <typename Message, typename Fields>
std::string EncodeFields(const Message& message, const Fields& fields) {
    FieldWriter writer;
    fields(message, writer);
    return writer.Text();
}

// what: names the message in errors: "job from rank 0". limit: the folders in which paths among the
// fields must be. After an error, `message` is partly filled.
template <typename Message, typename Fields>
Status DecodeFields(std::string_view what, std::string_view text, const Fields& fields,
                    Message& message, const FolderLimit& limit = {}) {
    auto in = ParseJsonText(text);
    if (!in.ok()) return MakeError(ErrorCode::kCorrupt, "{}: {}", what, in.error().message);
    FieldReader reader(what, *in, limit);
    fields(message, reader);
    return reader.status();
}

// The kind that FieldWriter::Kind wrote; "" if `text` is not such a message.
std::string KindOfMessage(std::string_view text);

}  // namespace weft
