#include "train/log/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/output_file.h"

namespace weft::train {
namespace {

constexpr uint64_t kLogBytes = 1ull << 30;
// Wrong bytes that a head line may have and still count as ours: one or two flipped bits.
constexpr int kMostWrongBytes = 2;

Error LogFailed(const std::string& path, const char* what, int error) {
    return MakeError(ErrorCode::kIo, "{}: cannot {}: {}", path, what, std::strerror(error));
}

std::optional<int64_t> StepOf(double value) {
    const bool whole = value >= 0 && value <= 9e15 && value == std::floor(value);
    if (!whole) return std::nullopt;
    return static_cast<int64_t>(value);
}

// Parses a number that fills the whole cell.
std::optional<double> NumberOf(std::string_view cell) {
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
    return value;
}

// The step of a row with as many numbers as the head has names; empty for damaged rows.
std::optional<int64_t> StepOfRow(std::string_view line, std::string_view head) {
    if (std::ranges::count(line, ',') != std::ranges::count(head, ',')) return std::nullopt;
    std::optional<int64_t> step;
    for (bool first = true;; first = false) {
        const size_t comma = line.find(',');
        const auto number = NumberOf(line.substr(0, comma));
        if (!number) return std::nullopt;
        if (first) step = StepOf(*number);
        if (comma == line.npos) return step;
        line.remove_prefix(comma + 1);
    }
}

bool IsDamagedHead(std::string_view text, std::string_view head) {
    if (text.size() < head.size()) return false;
    int wrong = 0;
    for (size_t i = 0; i < head.size(); ++i) wrong += text[i] == head[i] ? 0 : 1;
    return wrong <= kMostWrongBytes;
}

struct Line {
    std::string_view text;  // includes its line end
    int64_t step;           // -1: damaged
};

struct Mended {
    std::string text;
    int64_t damaged = 0;
};

// Drops lines whose step has a flipped bit: the step is above the next line's step, or not above
// the previous line's.
Mended Mend(std::string_view body, std::string_view head, int64_t first_step) {
    std::vector<Line> lines;
    for (size_t at = 0; at < body.size();) {
        const size_t end = body.find('\n', at);
        if (end == body.npos) break;
        const auto step = StepOfRow(body.substr(at, end - at), head);
        lines.push_back({body.substr(at, end + 1 - at), step.value_or(-1)});
        at = end + 1;
    }
    Mended mended{std::string(head), 0};
    int64_t last = -1, damaged = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
        const int64_t step = lines[i].step;
        const int64_t next = i + 1 < lines.size() ? lines[i + 1].step : -1;
        const bool ahead = next > last && next < step;
        if (step <= last || ahead) {
            ++damaged;
            continue;
        }
        if (step >= first_step) break;
        mended.text += lines[i].text;
        mended.damaged += std::exchange(damaged, 0);
        last = step;
    }
    return mended;
}

}  // namespace

int WriteAllOrNothing(int fd, std::string_view text) {
    struct stat before {};
    if (::fstat(fd, &before) != 0) return errno;
    while (!text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            const int error = put < 0 ? errno : ENOSPC;
            [[maybe_unused]] const int cut = ::ftruncate(fd, before.st_size);
            return error;
        }
        text.remove_prefix(static_cast<size_t>(put));
    }
    return 0;
}

Result<int64_t> LogFile::GoOn(int64_t first_step) {
    struct stat info {};
    if (::stat(path_.c_str(), &info) != 0) {
        WEFT_TRY(Flush());
        return int64_t{0};
    }
    WEFT_ASSIGN(const std::string text, ReadTextFile(path_, kLogBytes));
    const bool ours = text.starts_with(head_);
    if (!ours && !head_.starts_with(text) && !IsDamagedHead(text, head_)) {
        return MakeError(
            ErrorCode::kUsage,
            "{}: the file is a log with other columns; expected '{}'. Name another file", path_,
            head_.substr(0, head_.size() - 1));
    }
    const std::string_view body =
        std::string_view(text).substr(std::min(head_.size(), text.size()));
    const Mended mended = Mend(body, head_, first_step);
    if (text.starts_with(mended.text)) {
        if (text.size() == mended.text.size()) return mended.damaged;
        if (::truncate(path_.c_str(), static_cast<off_t>(mended.text.size())) != 0) {
            return LogFailed(path_, "cut", errno);
        }
        return mended.damaged;
    }
    WEFT_TRY(ReplaceFile(path_, mended.text));
    return mended.damaged + (ours || text.empty() ? 0 : 1);
}

Status LogFile::Add(std::string_view line) {
    waiting_ += line;
    ++waiting_lines_;
    const Status done = Flush();
    while (waiting_.size() > kMostWaitingBytes) {
        waiting_.erase(0, waiting_.find('\n') + 1);
        --waiting_lines_;
        ++dropped_;
    }
    return done;
}

Status LogFile::Flush() {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return LogFailed(path_, "open for writing", errno);
    struct stat info {};
    const bool empty = ::fstat(fd, &info) == 0 && info.st_size == 0;
    const int failed = WriteAllOrNothing(fd, empty ? head_ + waiting_ : waiting_);
    const int closed = ::close(fd) == 0 ? 0 : errno;
    if (failed != 0) return LogFailed(path_, "write", failed);
    // (Network file systems may report missing space only now: the rows wait. If they were written
    // anyway, they are duplicates, which the next run repairs.)
    if (closed != 0) return LogFailed(path_, "close after writing", closed);
    waiting_.clear();
    waiting_lines_ = 0;
    return {};
}

}  // namespace weft::train
