#include "train/data/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::train {
namespace {

namespace zlib = boost::beast::zlib;

constexpr size_t kPieceBytes = 1 << 20;

class Gzip {
  public:
    Gzip(const File& file, const std::function<Status(std::string_view)>& write)
        : file_(file), write_(write), out_(kPieceBytes) {}

    Status Run() {
        do {
            WEFT_TRY(Header());
            WEFT_TRY(Contents());
            WEFT_TRY(Trailer());
            WEFT_TRY(SkipZeros());
        } while (!in_.empty());
        return {};
    }

  private:
    Error Damaged(std::string_view why) const {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: it can't be unpacked as gzip: {}. Is the file complete?",
                         file_.path(), why);
    }

    // Reads on if no bytes are left; at the end of the file, in_ stays empty.
    Status Fill() {
        if (!in_.empty()) return {};
        buffer_.resize(std::min<uint64_t>(kPieceBytes, file_.size_bytes() - at_));
        WEFT_TRY(file_.ReadAt(at_, std::as_writable_bytes(std::span(buffer_))));
        at_ += buffer_.size();
        in_ = {buffer_.data(), buffer_.size()};
        return {};
    }

    Result<uint32_t> Byte() {
        WEFT_TRY(Fill());
        if (in_.empty()) return Damaged("it ends too early");
        const auto byte = static_cast<unsigned char>(in_.front());
        in_.remove_prefix(1);
        return uint32_t{byte};
    }

    // A little-endian number of `bytes` bytes.
    Result<uint32_t> Number(int bytes) {
        uint32_t number = 0;
        for (int i = 0; i < bytes; ++i) {
            WEFT_ASSIGN(const uint32_t byte, Byte());
            number |= byte << (8 * i);
        }
        return number;
    }

    Status SkipText() {
        for (;;) {
            WEFT_ASSIGN(const uint32_t byte, Byte());
            if (byte == 0) return {};
        }
    }

    Status Header() {
        constexpr uint32_t kChecked = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xE0;
        WEFT_ASSIGN(const uint32_t magic, Number(3));
        WEFT_ASSIGN(const uint32_t flags, Byte());
        if (magic != 0x088b1f || (flags & kReserved) != 0) {
            return Damaged("it begins like a gzip file, or follows one, but is not one");
        }
        for (int i = 0; i < 6; ++i) WEFT_TRY(Byte());  // time, flags, system
        if ((flags & kExtra) != 0) {
            WEFT_ASSIGN(const uint32_t size, Number(2));
            for (uint32_t i = 0; i < size; ++i) WEFT_TRY(Byte());
        }
        if ((flags & kName) != 0) WEFT_TRY(SkipText());
        if ((flags & kComment) != 0) WEFT_TRY(SkipText());
        if ((flags & kChecked) != 0) WEFT_TRY(Number(2));
        return {};
    }

    Status Contents() {
        inflater_.reset();
        checksum_.reset();
        bytes_ = 0;
        for (;;) {
            WEFT_TRY(Fill());
            zlib::z_params stream;
            stream.next_in = in_.data();
            stream.avail_in = in_.size();
            stream.next_out = out_.data();
            stream.avail_out = out_.size();
            boost::beast::error_code error;
            inflater_.write(stream, zlib::Flush::sync, error);
            const bool stuck = stream.avail_in == in_.size() && stream.avail_out == out_.size();
            const bool at_end = in_.empty();
            in_.remove_prefix(in_.size() - stream.avail_in);
            const std::string_view made(out_.data(), out_.size() - stream.avail_out);
            checksum_.process_bytes(made.data(), made.size());
            bytes_ += made.size();
            if (!made.empty()) WEFT_TRY(write_(made));
            if (error == zlib::error::end_of_stream) return {};
            if (stuck && at_end) return Damaged("it ends too early");
            if (stuck || (error && error != zlib::error::need_buffers)) {
                return Damaged("its compressed bytes are not valid");
            }
        }
    }

    Status Trailer() {
        WEFT_ASSIGN(const uint32_t checksum, Number(4));
        WEFT_ASSIGN(const uint32_t bytes, Number(4));
        if (checksum != checksum_.checksum()) {
            return Damaged(fmt::format("the CRC-32 of its contents is {:08x}, and it says {:08x}",
                                       checksum_.checksum(), checksum));
        }
        if (bytes == static_cast<uint32_t>(bytes_)) return {};
        return Damaged(fmt::format("it has {} bytes, and says {} (modulo 2^32)", bytes_, bytes));
    }

    // Tapes and copies may add zeros.
    Status SkipZeros() {
        WEFT_TRY(Fill());
        while (!in_.empty() && in_.front() == '\0') {
            in_.remove_prefix(1);
            WEFT_TRY(Fill());
        }
        return {};
    }

    const File& file_;
    const std::function<Status(std::string_view)>& write_;
    std::vector<char> buffer_, out_;
    std::string_view in_;  // bytes of buffer_ that are left
    uint64_t at_ = 0;      // bytes of the file that were read
    zlib::inflate_stream inflater_;
    boost::crc_32_type checksum_;
    uint64_t bytes_ = 0;  // of this member's contents
};

}  // namespace

Status Gunzip(const File& file, const std::function<Status(std::string_view)>& write) {
    return Gzip(file, write).Run();
}

}  // namespace weft::train
