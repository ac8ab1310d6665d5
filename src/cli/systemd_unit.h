// A unit for the user's systemd that runs the command line of this process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::cli {

struct UserUnit {
    std::string name;  // without ".service"
    std::string description;
    int64_t stop_seconds = 90;  // that the service may take to stop
    bool reloads = false;       // on SIGHUP
};

// Text for [Service]: ExecStart= with these words, exactly.
std::string UnitWords(const std::vector<std::string>& words);
// A value of systemd's: one line, with specifiers taken by the letter.
std::string UnitText(std::string_view text);

// Prints the unit on standard output, with this process's words but for --unit, and on standard
// error the commands that install it. Errors: kUnsupported (words with line breaks), kIo.
Status PrintUserUnit(const UserUnit& unit);

}  // namespace weft::cli
