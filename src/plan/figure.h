// A figure of a machine, a wire or a program: a number, its unit, and its source.
//
// In files a figure is "215 GB/s, measured: where it is from", or an object {"is": "215 GB/s",
// "mark": "measured", "source": "where it is from"}. Each kind of figure accepts its own units:
//     bytes      B, KB, MB, GB, TB, KiB, MiB, GiB, TiB
//     rate       any of these per second (GB/s), and Mbit/s, Gbit/s
//     compute    GFLOP/s, TFLOP/s, PFLOP/s
//     time       ns, us, ms, s, min (m), h
//     power      W        price  EUR             share  % (or a plain number up to 1)
//     speed      tok/s
// Figures far outside the range of real machines are errors, and so are prices in another currency.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::plan {

// Kind of a figure's source. In files: "measured", "fitted", "data sheet", "guessed".
enum class Mark { kMeasured, kFitted, kDataSheet, kGuessed };

enum class Unit { kBytes, kRate, kCompute, kTime, kPower, kPrice, kShare, kSpeed };

struct Figure {
    double value = 0;  // bytes, bytes/s, FLOP/s, s, W, EUR, a share of 1
    Mark mark = Mark::kGuessed;
    std::string source;
    // Assumed standard deviation of the true value, as a share of `value`: 3 % if measured, 7 % if
    // fitted, 10 % if from a data sheet, 30 % if guessed.
    double spread() const;
};

// "215 GB/s" -> 2.15e11. Errors: kUsage; the message lists the accepted units.
Result<double> ParseQuantity(std::string_view text, Unit unit);

// The members of a JSON object, which are read into the fields of a struct or written from them, so
// that one list of calls does both.
//
// A member that is absent leaves its field unchanged. Reading keeps the first error, whose message
// names the file and the path of the member. Writing leaves out counts of 0, optional fields that
// are not set, figures without a source, and empty texts, curves and maps.
class ObjectFields {
  public:
    // Reads. `object` must outlive this object. file, path: named in errors; "": the object is the
    // whole file.
    ObjectFields(const nlohmann::json& object, std::string file, std::string path = "");
    // Writes.
    ObjectFields() = default;

    // Need: the member is required. Take: returns whether it was read.
    void Need(const char* key, Unit unit, Figure& figure);
    bool Take(const char* key, Unit unit, Figure& figure);
    void Take(const char* key, Unit unit, std::optional<Figure>& figure);
    void Text(const char* key, std::string& text);
    void Count(const char* key, int& count, int least, int most);
    // {"64": "1.5 TFLOP/s", ...}: at least one entry.
    void Curve(const char* key, Unit unit, std::map<double, double>& curve);
    // fields(inner) lists the members of an inner object. set: whether it is written.
    using Fields = std::function<void(ObjectFields&)>;
    void Object(const char* key, bool set, const Fields& fields);
    // A map. fields(inner, value) lists the members of one value. fallback: supplies the fields of
    // absent members.
    template <typename T, typename ValueFields>
    void Object(const char* key, std::optional<T>& value, const ValueFields& fields,
                const T& fallback = {}) {
        Object(key, value.has_value(), [&](ObjectFields& inner) {
            if (inner.object_ != nullptr) value = fallback;
            fields(inner, *value);
        });
    }
    // Names::Parse(name) and Names::Text(key) convert between members' names and the map's keys;
    // Names::kWhat is what a key is. fields(inner, name, value) lists the member of that name.
    template <typename Names, typename Map, typename ValueFields>
    void Each(const char* key, Map& map, const ValueFields& fields) {
        Object(key, !map.empty(), [&](ObjectFields& inner) {
            for (const std::string& name : inner.TakeNames()) {
                const auto found = Names::Parse(name);
                if (!found) return inner.Fail(fmt::format("'{}' is no {}", name, Names::kWhat));
                fields(inner, name.c_str(), map[*found]);
            }
            if (inner.object_ != nullptr) return;
            for (auto& [its, value] : map) fields(inner, Names::Text(its).c_str(), value);
        });
    }

    // A member for the caller to parse; nullptr: no such member.
    const nlohmann::json* Member(const char* key);
    void Fail(const std::string& words);
    // Errors: kUsage (the first error, or a member that was not read).
    Status Finish() const;
    const nlohmann::ordered_json& written() const { return written_; }

  private:
    void Read(const nlohmann::json& member, const char* key, Unit unit, Figure& figure);
    std::vector<std::string> TakeNames();
    std::string FirstError() const;

    const nlohmann::json* object_ = nullptr;  // null: writes
    nlohmann::ordered_json written_ = nlohmann::ordered_json::object();
    std::string file_, path_, error_;  // error_: with the path
    std::vector<std::string> known_;
};

}  // namespace weft::plan
