#include "hub/curl_handle.h"

#include <utility>

namespace weft::hub {

void InitCurl() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    WEFT_CHECK(ready == CURLE_OK);
}

CurlHandle::CurlHandle(std::function<bool(std::string_view)> take, int64_t connect_ms,
                       const std::string& ca_file)
    : take_(std::move(take)) {
    InitCurl();
    easy_ = curl_easy_init();
    WEFT_CHECK(easy_ != nullptr);
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_PROTOCOLS_STR, "http,https");
    Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    Set(CURLOPT_SSL_VERIFYPEER, 1L);
    Set(CURLOPT_SSL_VERIFYHOST, 2L);
    Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_ms));
    Set(CURLOPT_ERRORBUFFER, reason_);
    Set(CURLOPT_WRITEFUNCTION, &CurlHandle::OnData);
    Set(CURLOPT_WRITEDATA, this);
    if (!ca_file.empty()) Set(CURLOPT_CAINFO, ca_file.c_str());
}

CurlHandle::~CurlHandle() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(headers_);
}

void CurlHandle::SetUrl(const std::string& url) {
    Set(CURLOPT_HTTPHEADER, static_cast<curl_slist*>(nullptr));
    curl_slist_free_all(std::exchange(headers_, nullptr));
    Set(CURLOPT_URL, url.c_str());
    reason_[0] = '\0';
}

void CurlHandle::AddHeader(const std::string& line) {
    headers_ = curl_slist_append(headers_, line.c_str());
    Set(CURLOPT_HTTPHEADER, headers_);
}

long CurlHandle::Status() const {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

std::string CurlHandle::Reason(CURLcode code) const {
    return reason_[0] != '\0' ? reason_ : curl_easy_strerror(code);
}

size_t CurlHandle::OnData(char* data, size_t size, size_t count, void* self) {
    return static_cast<CurlHandle*>(self)->take_({data, size * count}) ? size * count : 0;
}

}  // namespace weft::hub
