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

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

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

// Reads the members of one JSON object. Keeps the first error, whose message names `where` (such as
// a file) and the key. Finish() returns that error, or an error if the object has a member that was
// not read.
class ObjectReader {
  public:
    ObjectReader(const nlohmann::json& object, std::string where);

    Figure Need(const char* key, Unit unit);
    // Returns false and leaves `figure` unchanged if the object has no such member.
    bool Take(const char* key, Unit unit, Figure& figure);
    std::string Text(const char* key, std::string fallback = "");
    int Count(const char* key, int fallback, int least, int most);
    // Returns a member for the caller to parse; nullptr: no such member.
    const nlohmann::json* Member(const char* key);

    const std::string& where() const { return where_; }
    void Fail(std::string words);
    Status Finish() const;

  private:
    Figure Read(const nlohmann::json& member, const char* key, Unit unit);

    const nlohmann::json& object_;
    std::string where_, error_;
    std::vector<std::string> known_;
};

}  // namespace weft::plan
