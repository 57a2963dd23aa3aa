#include "install/hub_client.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/index.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kMaxApiBytes = 32 * kMiB;  // of one answer
constexpr size_t kMaxFiles = 100'000;
constexpr int kMaxPages = 1000, kMaxRedirects = 5;
// So often in a row an ETag may differ from the one before, as one server of many may lag behind.
constexpr uint32_t kMaxEtagChanges = 3;
constexpr uint32_t kMaxBadTexts = 5;

Result<HubFile> file_from_json(const Json& entry) {
  HubFile file;
  ASSIGN_OR_RETURN(file.name, json_string(entry, "path"));
  RETURN_IF_ERROR(check_relative_name(file.name));
  ASSIGN_OR_RETURN(file.bytes, json_uint(entry, "size", 0, INT64_MAX));
  ASSIGN_OR_RETURN(file.git_oid, json_string(entry, "oid"));
  if (json_has(entry, "lfs")) {
    ASSIGN_OR_RETURN(const Json* lfs, json_member(entry, "lfs"));
    ASSIGN_OR_RETURN(file.sha256, json_string(*lfs, "oid"));
    ASSIGN_OR_RETURN(file.bytes, json_uint(*lfs, "size", 0, INT64_MAX));
  }
  if (file.sha256.empty() ? !is_hex(file.git_oid, 40) : !is_hex(file.sha256, 64))
    return corrupt_error("{} has no digest", file.name);
  return file;
}

}  // namespace

// One thing to get: a range of a file, or a text of the API.
struct HubClient::Job {
  explicit Job(const RetryLimits& limits) : schedule(limits) {}

  std::optional<Fetch> fetch;  // nothing: a text
  std::string url;             // of the text
  std::string text, next;      // … its body, and its next page
  uint64_t max_bytes = 0;
  std::function<void(Status)> text_done;

  RetrySchedule schedule;
  std::string at;        // the address of this try
  std::string redirect;  // where the last answer sent us
  int redirects = 0;
  bool strayed = false;  // a redirect led away from the hub: no token from then on
  Judgement judgement;
  uint64_t skip_bytes = 0, arrived = 0;  // of this try
  uint32_t etag_changes = 0;
  uint64_t file_received = 0;  // of its file, by all, when it last failed
  bool enough = false;
};

HubClient::HubClient(HubSettings settings, std::string repository)
    : settings_(std::move(settings)), repository_(std::move(repository)) {
  random_ = std::random_device()();
}

HubClient::~HubClient() = default;

Result<std::unique_ptr<HubClient>> HubClient::create(HubSettings settings, std::string repository) {
  if (!is_hub_id(repository))
    return invalid_argument_error("'{}' is no name of a model on the hub", repository);
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  std::unique_ptr<HubClient> client(new HubClient(std::move(settings), std::move(repository)));
  ASSIGN_OR_RETURN(client->origin_, url_origin(client->settings_.endpoint));
  if (!is_safe_for_token(client->origin_)) {
    client->keeps_token_ = !client->settings_.token.empty();
    client->settings_.token.clear();
  }
  ASSIGN_OR_RETURN(client->loop_, HttpLoop::create(client->settings_.http));
  return client;
}

Status HubClient::open(const std::string& revision) {
  if (!is_hub_revision(revision))
    return invalid_argument_error("'{}' is no name of a revision", revision);
  revision_ = revision;
  const std::string api =
      fmt::format("{}/api/models/{}", settings_.endpoint, percent_encode(repository_));
  const std::string info = fmt::format("{}/revision/{}", api, percent_encode(revision, false));
  const auto get_commit = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::string text, get_text(info, kMaxApiBytes, nullptr));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, fmt::format("{} of the hub", repository_)));
    ASSIGN_OR_RETURN(commit_, json_string(json, "sha"));
    return {};
  };
  RETURN_IF_ERROR(again_while_bad(get_commit));
  if (!is_commit(commit_)) return corrupt_error("the hub gives no commit of {}", repository_);
  std::string next = fmt::format("{}/tree/{}?recursive=true", api, commit_);
  for (int page = 0; !next.empty(); ++page) {
    if (page == kMaxPages)
      return corrupt_error("the hub's list of files of {} has no end", repository_);
    const std::string url = std::exchange(next, "");
    const size_t before = files_.size();
    Status listed = again_while_bad([&]() -> Status {
      files_.resize(before);
      ASSIGN_OR_RETURN(const std::string text, get_text(url, kMaxApiBytes, &next));
      return list_page(text);
    });
    if (!listed.ok() && listed.error().code == ErrorCode::corrupt)
      return std::move(listed).error().within(
          fmt::format("the hub's list of files of {}", repository_));
    RETURN_IF_ERROR(listed);
    if (next.empty()) break;
    ASSIGN_OR_RETURN(next, follow_location(url, next));
    ASSIGN_OR_RETURN(const std::string origin, url_origin(next));
    if (origin != origin_)
      return io_error("the hub's list of files goes on at another place, {}", origin);
  }
  std::sort(files_.begin(), files_.end(),
            [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  for (size_t i = 1; i < files_.size(); ++i)
    if (files_[i].name == files_[i - 1].name)
      return corrupt_error("the hub's list of files of {} has {} twice", repository_,
                           files_[i].name);
  links_.resize(files_.size());
  return {};
}

// A text that is no answer at all may be a proxy's or a cut one: it is asked for again, as a failed
// transfer would be.
Status HubClient::again_while_bad(const std::function<Status()>& get) {
  for (RetrySchedule schedule(settings_.retry);;) {
    Status status = get();
    if (status.ok() || !(status.error().code == ErrorCode::corrupt ||
                         status.error().code == ErrorCode::invalid_argument))
      return status;
    const auto delay = schedule.next(std::nullopt, 0);
    // The hub means it, and it stays so: no use to ask more than a few times.
    if (!delay || schedule.failures() >= kMaxBadTexts) return status;
    note_retry(schedule, status.error(), *delay);
    Status waits;
    for (const auto end = Clock::now() + *delay; waits.ok() && Clock::now() < end;) {
      std::this_thread::sleep_for(milliseconds(20));
      waits = may_wait();
    }
    drop_note(schedule);
    RETURN_IF_ERROR(waits);
  }
}

Status HubClient::list_page(std::string_view text) {
  ASSIGN_OR_RETURN(const Json list, parse_json(text, "a page"));
  if (!list.is_array()) return corrupt_error("a page is not an array");
  for (const Json& entry : list) {
    if (!entry.is_object()) return corrupt_error("an entry is not an object");
    ASSIGN_OR_RETURN(const std::string type, json_string(entry, "type"));
    if (type != "file") continue;
    if (files_.size() == kMaxFiles) return corrupt_error("more than {} files", kMaxFiles);
    ASSIGN_OR_RETURN(HubFile file, file_from_json(entry));
    files_.push_back(std::move(file));
  }
  return {};
}

std::optional<uint32_t> HubClient::find(std::string_view name) const {
  const auto found =
      std::lower_bound(files_.begin(), files_.end(), name,
                       [](const HubFile& f, std::string_view n) { return f.name < n; });
  if (found == files_.end() || found->name != name) return std::nullopt;
  return static_cast<uint32_t>(found - files_.begin());
}

void HubClient::set_wait(HubWait wait) {
  const std::lock_guard lock(mutex_);
  wait_ = std::move(wait);
}

void HubClient::shut_down() {
  shut_down_ = true;
  loop_->stop();
}

Status HubClient::may_wait() const {
  if (shut_down_) return io_error("{} is no longer being read", repository_);
  HubWait wait;
  std::string note;
  {
    const std::lock_guard lock(mutex_);
    wait = wait_;
    if (!notes_.empty()) note = notes_.begin()->second;
  }
  if (wait && !wait(note)) return cancelled_error("stopped; run it again to continue");
  return {};
}

void HubClient::note_retry(const RetrySchedule& schedule, const Error& error, milliseconds delay) {
  const std::lock_guard lock(mutex_);
  notes_[&schedule] = fmt::format("{}; try {} in {:.0f} s", error.message, schedule.failures() + 1,
                                  std::max(1.0, static_cast<double>(delay.count()) / 1000));
}

void HubClient::drop_note(const RetrySchedule& schedule) {
  const std::lock_guard lock(mutex_);
  notes_.erase(&schedule);
}

namespace {

// One result that a thread waits for and the loop's thread gives.
class Answer {
 public:
  void give(Status status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    there_.notify_all();
  }
  // Nothing when it is not there in time.
  std::optional<Status> wait(milliseconds time) {
    std::unique_lock lock(mutex_);
    there_.wait_for(lock, time, [&] { return status_.has_value(); });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<Status> status_;
};

}  // namespace

Result<double> HubClient::measure_rate(uint32_t file, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> buffer(bytes);
  Arrival first, last;
  RETURN_IF_ERROR(read_in_time(file, offset, buffer, first, last));
  const std::chrono::duration<double> took = last.at - first.at;
  return took.count() <= 0 ? 0 : static_cast<double>(last.bytes - first.bytes) / took.count();
}

Status HubClient::read(uint32_t file, uint64_t offset, std::span<std::byte> into) {
  Arrival first, last;
  return read_in_time(file, offset, into, first, last);
}

Status HubClient::read_in_time(uint32_t file, uint64_t offset, std::span<std::byte> into,
                               Arrival& first, Arrival& last) {
  CHECK(file < files_.size());
  if (!in_file(offset, into.size(), files_[file].bytes))
    return corrupt_error("{}/{}: has {} bytes, and {} at {} are wanted", repository_,
                         files_[file].name, files_[file].bytes, into.size(), offset);
  if (into.empty()) return {};
  // The caller may stop waiting, and then its memory is gone: the transfer fills a buffer of its
  // own.
  struct Shared {
    std::vector<std::byte> bytes;
    Arrival first, last;  // the loop's until there is an answer
    Answer answer;
  };
  auto shared = std::make_shared<Shared>();
  shared->bytes.resize(into.size());
  post([this, shared, file, offset] {
    const auto progress = [shared](uint64_t received) {
      shared->last = {Clock::now(), received};
      if (shared->first.bytes == 0) shared->first = shared->last;
    };
    fetch({file, offset, shared->bytes, 0, progress,
           [shared](Status status) { shared->answer.give(std::move(status)); }});
  });
  for (;;) {
    if (const auto status = shared->answer.wait(milliseconds(100))) {
      RETURN_IF_ERROR(*status);
      first = shared->first;
      last = shared->last;
      std::memcpy(into.data(), shared->bytes.data(), into.size());
      return {};
    }
    RETURN_IF_ERROR(may_wait());
  }
}

Result<std::string> HubClient::get_text(const std::string& url, uint64_t max_bytes,
                                        std::string* next) {
  auto job = std::make_shared<Job>(settings_.retry);
  auto answer = std::make_shared<Answer>();
  job->url = url;
  job->max_bytes = max_bytes;
  job->text_done = [answer](Status status) { answer->give(std::move(status)); };
  post([this, job] { start(job); });
  for (;;) {
    if (auto status = answer->wait(milliseconds(100))) {
      RETURN_IF_ERROR(*std::move(status));
      if (next != nullptr) *next = job->next;
      return std::move(job->text);
    }
    RETURN_IF_ERROR(may_wait());
  }
}

void HubClient::post(std::function<void()> task) {
  loop_->post(std::move(task));
}

void HubClient::fetch(Fetch fetch) {
  auto job = std::make_shared<Job>(settings_.retry);
  job->fetch = std::move(fetch);
  start(std::move(job));
}

bool HubClient::token_goes_to(const std::string& url) const {
  const auto origin = url_origin(url);
  return !settings_.token.empty() && origin.ok() && *origin == origin_;
}

HubRequest HubClient::request_of(const Job& job) const {
  HubRequest request;
  request.repository = repository_;
  request.revision = revision_;
  request.endpoint = settings_.endpoint;
  request.has_token = !settings_.token.empty();
  request.keeps_token = keeps_token_;
  request.at_endpoint = !job.strayed;
  request.commit = commit_;
  if (!job.fetch) return request;
  const HubFile& file = files_[job.fetch->file];
  request.name = file.name;
  request.range = {job.fetch->offset + job.fetch->received,
                   job.fetch->into.size() - job.fetch->received, file.bytes};
  if (!file.sha256.empty()) request.linked_etag = fmt::format("\"{}\"", file.sha256);
  return request;
}

void HubClient::start(std::shared_ptr<Job> job) {
  const auto now = Clock::now();
  if (now < paused_until_)
    return loop_->after(std::chrono::ceil<milliseconds>(paused_until_ - now),
                        [this, job] { start(job); });
  const std::string hub = job->fetch ? fmt::format("{}/{}/resolve/{}/{}", settings_.endpoint,
                                                   percent_encode(repository_), commit_,
                                                   percent_encode(files_[job->fetch->file].name))
                                     : job->url;
  if (!job->redirect.empty()) {
    job->at = job->redirect;
  } else if (job->fetch && !links_[job->fetch->file].url.empty()) {
    job->at = links_[job->fetch->file].url;
    job->strayed = links_[job->fetch->file].strayed;
  } else {
    job->at = hub;
    job->strayed = false;
  }
  job->skip_bytes = job->arrived = 0;
  job->enough = false;
  job->judgement = {};
  HttpTransfer request;
  request.url = job->at;
  if (!job->strayed && token_goes_to(job->at)) request.bearer_token = settings_.token;
  if (job->fetch) {
    request.offset = job->fetch->offset + job->fetch->received;
    request.bytes = job->fetch->into.size() - job->fetch->received;
  }
  request.headers = [this, job](const HubAnswer& answer) { return take_headers(*job, answer); };
  request.body = [this, job](std::span<const std::byte> bytes) { return take_body(*job, bytes); };
  request.done = [this, job](const HubAnswer& answer) { end_transfer(job, answer); };
  loop_->start(std::move(request));
}

bool HubClient::take_headers(Job& job, const HubAnswer& answer) {
  const HubRequest request = request_of(job);
  job.judgement = judge(request, answer, std::time(nullptr));
  if (job.judgement.verdict != Verdict::take) return false;
  drop_note(job.schedule);
  job.skip_bytes = job.judgement.skip_bytes;
  if (!job.fetch) {
    job.text.clear();
    job.next = next_page(answer.link);
    return true;
  }
  Link& link = links_[job.fetch->file];
  // The digest of the contents is right whatever another answer said.
  if (link.etag.empty() || (!answer.etag.empty() && answer.etag == request.linked_etag))
    link.etag = answer.etag;
  if (answer.etag.empty() || answer.etag == link.etag) {
    job.etag_changes = 0;
    return true;
  }
  const bool last = ++job.etag_changes == kMaxEtagChanges;
  job.judgement.verdict = last ? Verdict::stop : Verdict::renew;
  job.judgement.error = io_error(
      "{}/{} has another ETag than before: it changed on the server while it was installed",
      repository_, request.name);
  return false;
}

bool HubClient::take_body(Job& job, std::span<const std::byte> bytes) {
  bytes_received_ += bytes.size();
  job.arrived += bytes.size();
  if (!job.fetch) {
    if (job.text.size() + bytes.size() > job.max_bytes) {
      job.judgement.verdict = Verdict::stop;
      job.judgement.error = corrupt_error("{}: the hub's answer has more than {}", repository_,
                                          format_bytes(job.max_bytes));
      return false;
    }
    job.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }
  const uint64_t skip = std::min<uint64_t>(job.skip_bytes, bytes.size());
  job.skip_bytes -= skip;
  bytes = bytes.subspan(skip);
  Fetch& fetch = *job.fetch;
  const uint64_t room = fetch.into.size() - fetch.received;
  const uint64_t part = std::min<uint64_t>(room, bytes.size());
  if (part > 0) {
    std::memcpy(fetch.into.data() + fetch.received, bytes.data(), part);
    fetch.received += part;
    job.schedule.progressed();
    links_[fetch.file].received += part;
    fetch.progress(fetch.received);
  }
  job.enough = fetch.received == fetch.into.size();
  return bytes.size() <= room;  // a server that sends on after the range is not listened to
}

void HubClient::end_transfer(std::shared_ptr<Job> job, const HubAnswer& answer) {
  const bool whole = job->fetch ? job->fetch->received == job->fetch->into.size() : true;
  if (job->judgement.verdict == Verdict::take) {
    if (whole && (answer.fault.empty() || job->enough)) {
      drop_note(job->schedule);
      return job->fetch ? job->fetch->done({}) : job->text_done({});
    }
    HubAnswer broken = answer;
    if (broken.fault.empty())
      broken.fault = fmt::format("the server sent only {} bytes of the range", job->arrived);
    job->judgement = judge(request_of(*job), broken, std::time(nullptr));
  }
  if (job->judgement.verdict == Verdict::redirect) return follow(std::move(job), answer);
  const Judgement judgement = job->judgement;
  try_again(std::move(job), judgement);
}

void HubClient::follow(std::shared_ptr<Job> job, const HubAnswer& answer) {
  auto to = follow_location(job->at, answer.location);
  if (to.ok() && ++job->redirects > kMaxRedirects)
    to = io_error("more than {} redirects", kMaxRedirects);
  if (!to.ok()) return try_again(job, {Verdict::renew, std::move(to).error().within(repository_)});
  job->redirect = *to;
  // For good, also when it leads back: who sends us to the hub from elsewhere gets no token used.
  const auto origin = url_origin(*to);
  job->strayed = job->strayed || !origin.ok() || *origin != origin_;
  // Kept for the other ranges of this file.
  if (job->fetch) {
    links_[job->fetch->file].url = *to;
    links_[job->fetch->file].strayed = job->strayed;
  }
  start(std::move(job));
}

void HubClient::try_again(std::shared_ptr<Job> job, const Judgement& judgement) {
  const auto fail = [&](Error error) {
    drop_note(job->schedule);
    job->fetch ? job->fetch->done(std::move(error)) : job->text_done(std::move(error));
  };
  job->redirects = 0;
  job->redirect.clear();
  if (judgement.verdict == Verdict::stop) return fail(judgement.error);
  if (job->fetch) {
    const uint64_t received = links_[job->fetch->file].received;
    if (received > std::exchange(job->file_received, received)) job->schedule.forgive();
  }
  random_ = random_ * 1664525 + 1013904223;
  const auto delay = job->schedule.next(judgement.delay, random_ >> 16);
  if (!delay) {
    Error error = judgement.error;
    error.message += fmt::format("; tried {} times", job->schedule.failures());
    return fail(std::move(error));
  }
  // A link that fails may be the reason, whatever the failure looks like.
  if (job->fetch && (judgement.verdict == Verdict::renew || job->schedule.failures() > 1))
    links_[job->fetch->file].url.clear();
  note_retry(job->schedule, judgement.error, *delay);
  // All connections together: more requests would only make the block longer.
  if (judgement.verdict == Verdict::wait)
    paused_until_ = std::max(paused_until_, Clock::now() + *delay);
  loop_->after(*delay, [this, job] { start(job); });
}

}  // namespace wader
