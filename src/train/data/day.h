// The day that chat templates show (strftime_now). A job has one day, the day of its first start,
// so that all ranks, a run over midnight and a resumed job tokenize the same texts.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace weft::train {

// "2026-11-29", in local time, as the server shows it.
std::string Today();

// ChatInput::now_s of a day: noon in local time, so that templates show this day in any time zone.
// "" (checkpoints of versions that did not record the day): 1, which shows January 1, 1970.
// Errors: kCorrupt: not a day from 1971 to 9999.
Result<int64_t> NoonOf(const std::string& day);

}  // namespace weft::train
