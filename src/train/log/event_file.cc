#include "train/log/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/crc32c.h"
#include "train/log/log_file.h"
#include "train/log/protobuf.h"

namespace weft::train {
namespace {

using namespace protobuf;

std::string EventHead() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::string event;
    AddDouble(event, 1, std::chrono::duration<double>(now).count());
    return event;
}

// A CRC of data that contains CRCs is weak; the format rotates it and adds a constant.
uint32_t MaskedCrc(std::string_view data) {
    const uint32_t crc = Crc32c(std::as_bytes(std::span(data)));
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string HostName() {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
    return name;
}

Error Failed(const std::string& path, const char* what) {
    return MakeError(ErrorCode::kIo, "{}: cannot {}: {}", path, what, std::strerror(errno));
}

}  // namespace

std::string TfRecord(std::string_view data) {
    std::string record;
    record.reserve(data.size() + 16);
    AddRaw(record, static_cast<uint64_t>(data.size()));
    AddRaw(record, MaskedCrc(record));
    record += data;
    AddRaw(record, MaskedCrc(data));
    return record;
}

Result<EventFile> EventFile::Create(const std::string& folder) {
    static std::atomic<int> number = 0;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
        return MakeError(ErrorCode::kIo, "{}: cannot make the folder: {}", folder, error.message());
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
    const std::string path = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, seconds,
                                         HostName(), ::getpid(), number++);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return Failed(path, "open for writing");
    EventFile file(path, fd);
    std::string event = EventHead();
    AddBytes(event, 3, "brain.Event:2");
    if (Status begun = file.Write(event); !begun.ok()) {
        ::unlink(path.c_str());
        return begun.error();
    }
    return file;
}

Status EventFile::AddScalar(std::string_view tag, int64_t step, double value) {
    std::string one, summary, event = EventHead();
    AddBytes(one, 1, tag);
    AddFloat(one, 2, static_cast<float>(value));
    AddBytes(summary, 1, one);
    AddInt(event, 2, step);
    AddBytes(event, 5, summary);
    return Write(event);
}

Status EventFile::AddText(std::string_view tag, int64_t step, std::string_view text) {
    std::string plugin, metadata, shape, dimension, tensor, one, summary, event = EventHead();
    AddBytes(plugin, 1, "text");
    AddBytes(metadata, 1, plugin);
    AddInt(dimension, 1, 1);
    AddBytes(shape, 2, dimension);
    AddInt(tensor, 1, 7);  // DT_STRING
    AddBytes(tensor, 2, shape);
    AddBytes(tensor, 8, text);
    AddBytes(one, 1, tag);
    AddBytes(one, 8, tensor);
    AddBytes(one, 9, metadata);
    AddBytes(summary, 1, one);
    AddInt(event, 2, step);
    AddBytes(event, 5, summary);
    return Write(event);
}

Status EventFile::Write(std::string_view event) {
    const int failed = WriteAllOrNothing(fd_.get(), TfRecord(event));
    if (failed == 0) return {};
    errno = failed;
    return Failed(path_, "write");
}

bool EventFile::removed() const {
    struct stat info {};
    return ::fstat(fd_.get(), &info) != 0 || info.st_nlink == 0;
}

}  // namespace weft::train
