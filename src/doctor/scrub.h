// What a snapshot leaves out, so that it can be shown to strangers: hardware addresses and serial
// numbers, the tail of link-local addresses that repeats them, kernel parameters and log lines
// that no check reads, names of users. The checks find the same in what is left.
#pragma once

#include <string>

namespace weft::doctor {

std::string Scrub(const std::string& path, std::string text);

}  // namespace weft::doctor
