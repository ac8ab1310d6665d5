// One libcurl handle: the options that all requests share, its header lines, and its errors.
// HTTP/1.1 over http or https; certificates are verified, TLS is at least 1.2; no signals.
#pragma once

#include <curl/curl.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/check.h"

namespace weft::hub {

// libcurl's own set-up, once per process. CurlHandle calls it.
void InitCurl();

class CurlHandle {
  public:
    // take: called with each part of a response's body; false ends the request.
    // ca_file: trusted certificates; empty: the system's certificates.
    CurlHandle(std::function<bool(std::string_view)> take, int64_t connect_ms,
               const std::string& ca_file);
    ~CurlHandle();
    CurlHandle(const CurlHandle&) = delete;
    CurlHandle& operator=(const CurlHandle&) = delete;

    // Begins a new request: no header lines, no error.
    void SetUrl(const std::string& url);
    void AddHeader(const std::string& line);
    template <typename Value>
    void Set(CURLoption option, Value value) {
        WEFT_CHECK(curl_easy_setopt(easy_, option, value) == CURLE_OK);
    }

    CURL* get() const { return easy_; }
    // The HTTP status; 0: no response yet.
    long Status() const;
    std::string Reason(CURLcode code) const;

  private:
    static size_t OnData(char* data, size_t size, size_t count, void* self);

    const std::function<bool(std::string_view)> take_;
    CURL* easy_;
    curl_slist* headers_ = nullptr;
    char reason_[CURL_ERROR_SIZE] = {};
};

}  // namespace weft::hub
