#include "train/log/step_command.h"

#include <unistd.h>

#include "base/child_process.h"
#include "base/fd.h"
#include "base/memory_file.h"
#include "base/printable.h"
#include "train/log/log_file.h"

namespace weft::train {
namespace {

constexpr size_t kMostErrorBytes = 200;

}  // namespace

Status StepCommand::Add(const LogRow& row) {
    using Json = nlohmann::ordered_json;
    const std::string text = row.line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const Fd input = MemoryFile("step");
    if (input.get() < 0 || WriteAllOrNothing(input.get(), text) != 0 ||
        ::lseek(input.get(), 0, SEEK_SET) != 0) {
        return MakeError(ErrorCode::kIo, "{}: no memory for its input", flag_);
    }
    const auto ran =
        RunChild({"/bin/sh", "-c", command_}, Deadline::In(timeout_s_ * 1000),
                 {.input = input.get(), .name = fmt::format("{} '{}'", flag_, command_)});
    if (!ran.ok()) return ran.error();
    if (ran->status == 0) return {};
    const std::string line = ran->err.substr(0, ran->err.find('\n')).substr(0, kMostErrorBytes);
    return MakeError(ErrorCode::kIo, "{} '{}' ended with status {} after step {}{}", flag_,
                     command_, ran->status, row.step, line.empty() ? "" : ": " + Printable(line));
}

}  // namespace weft::train
