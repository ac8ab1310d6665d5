// Compares training checkpoints with the disk's raw speed: saves, commits and reads back a state,
// then writes, syncs and reads a plain file of the same size.
//     build/bench/checkpoint_bench FOLDER [MIB]      default: 1540 MiB, AdamW on SmolLM2-135M
// Reads come from the disk: the page cache is dropped first.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/deadline.h"
#include "train/checkpoint/reader.h"
#include "train/checkpoint/writer.h"

namespace {

using namespace weft;
using namespace weft::train;

constexpr size_t kPiece = 8 << 20;

template <typename T>
T Must(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    fmt::print(stderr, "{}\n", result.error().message);
    std::exit(1);
}

void Must(const Status& status) {
    if (status.ok()) return;
    fmt::print(stderr, "{}\n", status.error().message);
    std::exit(1);
}

void Print(const char* what, size_t bytes, int64_t begin_ns) {
    const double seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
    fmt::print("{:<28}{:>8.3f} s {:>8.0f} MB/s\n", what, seconds,
               static_cast<double>(bytes) / seconds * 1e-6);
}

void Forget(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
}

void Checkpoints(const std::string& folder, const std::vector<float>& data) {
    const size_t bytes = data.size() * sizeof(float);
    const Array array{"weight", "all", static_cast<int64_t>(data.size() / 1024), 1024};
    RankWriter writer(folder, 0);
    const int64_t begin_ns = NowNs();
    Must(writer.Start(1, {{array, TensorRegion::Whole(array), std::as_bytes(std::span(data))}}));
    Print("begin a save", bytes, begin_ns);
    Manifest manifest;
    manifest.step = 1;
    manifest.files = {Must(writer.Finish())};
    manifest.arrays = {array};
    Print("save", bytes, begin_ns);
    Must(CommitCheckpoint(folder, manifest, 1));
    Print("save and commit", bytes, begin_ns);
    const std::string step = StepFolder(folder, 1);
    Forget(step + "/" + manifest.files[0].name);
    std::vector<float> out(data.size(), 1.0f);  // pages already mapped, as in the plain read
    const int64_t load_ns = NowNs();
    const Checkpoint checkpoint = Must(Checkpoint::Open(step));
    Must(
        checkpoint.Read(array, TensorRegion::Whole(array), std::as_writable_bytes(std::span(out))));
    Print("load, checked", bytes, load_ns);
    if (out != data) std::abort();
    std::filesystem::remove_all(folder + "/checkpoints");
}

void Raw(const std::string& folder, const std::vector<float>& data) {
    const std::string path = folder + "/checkpoint_bench.raw";
    const std::span<const std::byte> bytes = std::as_bytes(std::span(data));
    const int64_t begin_ns = NowNs();
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
        const auto part = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
        if (::write(fd, part.data(), part.size()) != static_cast<ssize_t>(part.size()))
            std::exit(1);
    }
    ::fsync(fd);
    Print("plain write and fsync", bytes.size(), begin_ns);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    std::vector<std::byte> piece(kPiece);
    const int64_t read_ns = NowNs();
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
        if (::pread(fd, piece.data(), piece.size(), static_cast<off_t>(at)) <= 0) std::exit(1);
    }
    Print("plain read", bytes.size(), read_ns);
    ::close(fd);
    ::unlink(path.c_str());
}

}  // namespace

int main(int count, char** words) {
    if (count < 2) {
        fmt::print(stderr, "checkpoint_bench FOLDER [MIB]\n");
        return 2;
    }
    const size_t mib = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1540;
    std::vector<float> data(mib << 18);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i * 2654435761u >> 8);
    for (int round = 0; round < 2; ++round) {
        Checkpoints(words[1], data);
        Raw(words[1], data);
    }
    return 0;
}
