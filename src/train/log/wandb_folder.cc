#include "train/log/wandb_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <random>

#include "base/deadline.h"
#include "train/log/log_file.h"
#include "train/log/protobuf.h"

namespace weft::train {
namespace {

using namespace protobuf;

constexpr size_t kBlock = 32768, kHead = 7;
enum PartType : uint8_t { kFull = 1, kFirst, kMiddle, kLast };

std::string RandomId() {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
    std::random_device random;
    std::string id;
    while (id.size() < 8) id += kLetters[random() % kLetters.size()];
    return id;
}

// An item of a config or a history: the key and the value's JSON.
template <typename Json>
std::string Item(const std::string& key, const Json& value) {
    std::string item;
    AddBytes(item, 1, key);
    AddBytes(item, 16, value.dump(-1, ' ', false, Json::error_handler_t::replace));
    return item;
}

// The parts of a record, each in one block of the file, which has `size` bytes before.
std::string Framed(std::string_view record, uint64_t size) {
    std::string out;
    for (bool first = true;; first = false) {
        size_t left = kBlock - (size + out.size()) % kBlock;
        if (left < kHead) {
            out.append(left, '\0');
            left = kBlock;
        }
        const std::string_view part = record.substr(0, left - kHead);
        record.remove_prefix(part.size());
        const bool last = record.empty();
        const uint8_t type = first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle);
        uLong crc = ::crc32(0, &type, 1);
        crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()),
                      static_cast<uInt>(part.size()));
        AddRaw(out, static_cast<uint32_t>(crc));
        AddRaw(out, static_cast<uint16_t>(part.size()));
        AddRaw(out, type);
        out += part;
        if (last) return out;
    }
}

}  // namespace

Status WandbFolder::Begin() {
    if (file_.get() >= 0) return {};
    const std::string id = RandomId();
    const std::time_t now = std::time(nullptr);
    const std::string folder =
        fmt::format("{}/wandb/offline-run-{:%Y%m%d_%H%M%S}-{}", folder_, fmt::localtime(now), id);
    std::error_code failed;
    std::filesystem::create_directories(folder + "/files", failed);
    path_ = fmt::format("{}/run-{}.wandb", folder, id);
    file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (file_.get() < 0) {
        return MakeError(ErrorCode::kIo, "{}: cannot open for writing: {}", path_,
                         std::strerror(errno));
    }
    size_ = records_ = 0;
    begin_ns_ = NowNs();
    const std::string head(":W&B\xe1\xbe\0", kHead);
    if (WriteAllOrNothing(file_.get(), head) == 0) size_ = head.size();
    std::string version, header, config, time, run, begin, told;
    AddBytes(version, 1, "weft");
    AddBytes(header, 1, version);
    AddBytes(begin, 21, header);
    WEFT_TRY(Write(std::move(begin)));
    for (const auto& [key, value] : settings_.items()) AddBytes(config, 1, Item(key, value));
    AddInt(time, 1, now);
    AddBytes(run, 1, id);
    const std::string entity = EnvironmentText("WANDB_ENTITY");
    const std::string project = EnvironmentText("WANDB_PROJECT");
    const std::string name = name_.empty() ? EnvironmentText("WANDB_NAME") : name_;
    if (!entity.empty()) AddBytes(run, 2, entity);
    if (!project.empty()) AddBytes(run, 3, project);
    AddBytes(run, 4, config);
    if (!name.empty()) AddBytes(run, 8, name);
    AddBytes(run, 17, time);
    AddBytes(told, 17, run);
    return Write(std::move(told));
}

Status WandbFolder::Write(std::string record) {
    std::string numbered;
    AddInt(numbered, 1, records_ + 1);
    const std::string framed = Framed(numbered + record, size_);
    const int failed = WriteAllOrNothing(file_.get(), framed);
    if (failed != 0) {
        return MakeError(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(failed));
    }
    size_ += framed.size();
    ++records_;
    return {};
}

Status WandbFolder::Add(const LogRow& row) {
    WEFT_TRY(Begin());
    std::string step, history, record;
    AddInt(step, 1, row.step);
    for (const auto& [key, value] : row.line.items()) AddBytes(history, 1, Item(key, value));
    AddBytes(history, 1, Item("_step", nlohmann::json(row.step)));
    AddBytes(history, 2, step);
    AddBytes(record, 2, history);
    return Write(std::move(record));
}

Status WandbFolder::End(bool done) {
    if (file_.get() < 0) return {};
    std::string exit, record;
    AddInt(exit, 1, done ? 0 : 1);
    AddInt(exit, 2, (NowNs() - begin_ns_) / 1'000'000'000);
    AddBytes(record, 18, exit);
    return Write(std::move(record));
}

}  // namespace weft::train
