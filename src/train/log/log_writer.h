// A destination of a run's rows: log files, a tracking server, a command of the user.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/sample.h"

namespace weft::train {

// The value of an environment variable; "": not set.
inline std::string EnvironmentText(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

// An update, and what follows it.
struct LogRow {
    int64_t step = 0;
    std::vector<double> values;   // one per column of the log; not a number: none
    nlohmann::ordered_json line;  // the object that --json prints
    std::vector<SampleText> samples;
};

// After an error, the next row may succeed. Thread: one caller at a time.
class LogWriter {
  public:
    virtual ~LogWriter() = default;
    virtual bool Wants(const LogRow& /*row*/) const { return true; }
    virtual Status Add(const LogRow& row) = 0;
    // Called when no further row waits: sends what Add has gathered.
    virtual Status Flush() { return {}; }
    // done: the job has ended with its result.
    virtual Status End(bool /*done*/) { return {}; }
};

}  // namespace weft::train
