// Starts tests/hub/server.py, a Hugging Face Hub that misbehaves on request, and talks to it.
#pragma once

#include <curl/curl.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>

#include "base/hash.h"
#include "hub/spec.h"
#include "support/python_server.h"
#include "support/temp_dir.h"

namespace weft::test {

using nlohmann::json;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

class HubServer {
  public:
    // Why it can't run here; empty where it can.
    static std::string Missing() {
        for (const char* program : {"python3", "openssl"}) {
            const std::string look = std::string("command -v ") + program + " >/dev/null 2>&1";
            if (std::system(look.c_str()) != 0) return std::string(program) + " is not installed";
        }
        return {};
    }

    std::string endpoint() const { return "https://localhost:" + std::to_string(server_.port()); }
    std::string ca_file() const { return folder_ / "ca.pem"; }

    // What is there, and how it misbehaves; forgets what was counted.
    void Set(const json& words) const { Control(words.dump()); }
    // What was counted since.
    json Counted() const { return json::parse(Control("")); }

  private:
    std::string Control(const std::string& post) const {
        CURL* easy = curl_easy_init();
        std::string answer;
        const std::string url = endpoint() + "/control", ca = ca_file();
        curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
        curl_easy_setopt(easy, CURLOPT_CAINFO, ca.c_str());
        curl_easy_setopt(easy, CURLOPT_TIMEOUT, 20L);
        if (!post.empty()) curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, post.c_str());
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer);
        curl_easy_setopt(
            easy, CURLOPT_WRITEFUNCTION, +[](char* data, size_t size, size_t count, void* to) {
                static_cast<std::string*>(to)->append(data, size * count);
                return size * count;
            });
        EXPECT_EQ(curl_easy_perform(easy), CURLE_OK);
        curl_easy_cleanup(easy);
        return answer;
    }

    TempDir folder_;
    PythonServer server_{"hub/server.py", 2, {folder_.path()}};
};

// One server for all tests of a program; an empty cache folder for each.
class HubTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        std::signal(SIGPIPE, SIG_IGN);
        if (HubServer::Missing().empty()) server_ = new HubServer();
    }
    static void TearDownTestSuite() {
        delete server_;
        server_ = nullptr;
    }
    void SetUp() override {
        if (server_ == nullptr) GTEST_SKIP() << HubServer::Missing();
        config_.endpoint = server_->endpoint();
        config_.cache = folder_ / "hub";
        config_.ca_file = server_->ca_file();
        config_.SetTimeout(5000);
    }

    // `path` with `size` made-up bytes, in large file storage.
    static json Large(const std::string& path, uint64_t size) {
        return {{"path", path}, {"size", size}, {"large", true}};
    }
    static json Small(const std::string& path, const std::string& text) {
        return {{"path", path}, {"text", text}};
    }

    inline static HubServer* server_ = nullptr;
    TempDir folder_;
    hub::Config config_;
};

}  // namespace weft::test
