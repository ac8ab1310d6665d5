// An HTTP client for hostile requests: sends any bytes in any pieces, slowly or incompletely, and
// reads responses without assuming that they are valid.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"

namespace weft::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int64_t kAnswerMs = 20'000;
#else
inline constexpr int64_t kAnswerMs = 5'000;
#endif

struct RawAnswer {
    int status = 0;  // 0: no (complete) response
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    bool whole = false;  // the body is complete by its framing

    std::string Header(std::string_view name) const {
        for (const auto& [key, value] : headers) {
            if (key.size() == name.size() &&
                ::strncasecmp(key.data(), name.data(), key.size()) == 0)
                return value;
        }
        return {};
    }
    bool Has(std::string_view name) const { return !Header(name).empty(); }
    // Message of an error in OpenAI's format; else "".
    std::string Error() const {
        const auto json = nlohmann::json::parse(body, nullptr, false);
        if (json.is_discarded() || !json.contains("error")) return {};
        const auto& error = json["error"];
        for (const char* key : {"message", "type", "param", "code"}) {
            if (!error.contains(key)) return {};
        }
        return error["message"];
    }
};

class RawClient {
  public:
    explicit RawClient(int port, int receive_buffer = 0) {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        WEFT_CHECK(fd_ >= 0);
        if (receive_buffer > 0) {
            ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
        const int one = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    RawClient(RawClient&& other) noexcept { *this = std::move(other); }
    RawClient& operator=(RawClient&& other) noexcept {
        std::swap(fd_, other.fd_);
        std::swap(connected_, other.connected_);
        std::swap(came_, other.came_);
        return *this;
    }
    ~RawClient() { Close(); }

    bool connected() const { return connected_; }
    int fd() const { return fd_; }
    // Received bytes that no Answer has consumed.
    const std::string& came() const { return came_; }

    void Close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    // Closes with a reset.
    void Reset() {
        const linger at_once{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        Close();
    }
    void EndSending() { ::shutdown(fd_, SHUT_WR); }

    // False: the server no longer accepts data.
    bool Send(std::string_view bytes, int64_t most_ms = kAnswerMs) {
        const Deadline deadline = Deadline::In(most_ms);
        while (!bytes.empty()) {
            const ssize_t put =
                ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put > 0) {
                bytes.remove_prefix(static_cast<size_t>(put));
                continue;
            }
            pollfd entry{fd_, POLLOUT, 0};
            if (errno != EAGAIN || ::poll(&entry, 1, static_cast<int>(deadline.left_ms())) <= 0) {
                return false;
            }
        }
        return true;
    }

    // Reads further bytes into came(); false: end of the connection, or deadline.
    bool ReadSome(const Deadline& deadline) {
        pollfd entry{fd_, POLLIN, 0};
        if (::poll(&entry, 1, static_cast<int>(deadline.left_ms())) <= 0) return false;
        char buffer[16384];
        const ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
        ended_ = got <= 0;
        if (got > 0) came_.append(buffer, static_cast<size_t>(got));
        return got > 0;
    }
    bool ReadUntil(std::string_view text, int64_t most_ms = kAnswerMs) {
        const Deadline deadline = Deadline::In(most_ms);
        while (came_.find(text) == came_.npos) {
            if (!ReadSome(deadline)) return false;
        }
        return true;
    }
    // Reads until the server closes; false: it does not.
    bool ReadToEnd(int64_t most_ms = kAnswerMs) {
        const Deadline deadline = Deadline::In(most_ms);
        while (ReadSome(deadline)) {
        }
        return ended_;
    }

    // Reads the next response.
    RawAnswer Answer(bool head = false, int64_t most_ms = kAnswerMs) {
        const Deadline deadline = Deadline::In(most_ms);
        RawAnswer answer;
        if (!ReadUntil("\r\n\r\n", most_ms)) return answer;
        ParseHead(Take(came_.find("\r\n\r\n") + 4), answer);
        if (head || answer.status < 200 || answer.status == 204 || answer.status == 304) {
            answer.whole = true;
        } else if (answer.Header("Transfer-Encoding") == "chunked") {
            ReadChunks(deadline, answer);
        } else if (answer.Has("Content-Length")) {
            const size_t size = std::strtoull(answer.Header("Content-Length").c_str(), nullptr, 10);
            while (came_.size() < size && ReadSome(deadline)) {
            }
            answer.whole = came_.size() >= size;
            answer.body = Take(std::min(size, came_.size()));
        } else {
            while (ReadSome(deadline)) {
            }
            answer.whole = ended_;
            answer.body = Take(came_.size());
        }
        return answer;
    }
    RawAnswer Ask(std::string_view request) {
        Send(request);
        return Answer();
    }

  private:
    std::string Take(size_t bytes) {
        std::string taken = came_.substr(0, bytes);
        came_.erase(0, bytes);
        if (came_.empty())
            std::string().swap(came_);  // thousands of idle clients must not hold memory
        return taken;
    }
    static void ParseHead(const std::string& head, RawAnswer& answer) {
        EXPECT_EQ(head.rfind("HTTP/1.1 ", 0), 0u) << head;
        if (head.rfind("HTTP/1.1 ", 0) == 0) answer.status = std::atoi(head.c_str() + 9);
        for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
            const size_t end = head.find("\r\n", at);
            const size_t colon = head.find(": ", at);
            EXPECT_LT(colon, end) << head;
            if (colon >= end) return;
            answer.headers.emplace_back(head.substr(at, colon - at),
                                        head.substr(colon + 2, end - colon - 2));
            at = end + 2;
        }
    }
    void ReadChunks(const Deadline& deadline, RawAnswer& answer) {
        for (;;) {
            while (came_.find("\r\n") == came_.npos) {
                if (!ReadSome(deadline)) return;
            }
            const size_t line = came_.find("\r\n") + 2;
            const size_t size = std::strtoull(came_.c_str(), nullptr, 16);
            while (came_.size() < line + size + 2) {
                if (!ReadSome(deadline)) return;
            }
            Take(line);
            answer.body += Take(size);
            if (Take(2) != "\r\n") return;
            if (size == 0) {
                answer.whole = true;
                return;
            }
        }
    }

    int fd_ = -1;
    bool connected_ = false, ended_ = false;
    std::string came_;
};

}  // namespace weft::test
