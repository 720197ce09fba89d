CREATE STREAM person(id bigint, name text, email_address text, credit_card text, city text, state text, date_time timestamp, extra text, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds');
CREATE STREAM auction(id bigint, item_name text, description text, initial_bid bigint, reserve bigint, date_time timestamp, expires timestamp, seller bigint, category bigint, extra text, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds');
CREATE STREAM bid(auction bigint, bidder bigint, price bigint, channel text, url text, date_time timestamp, extra text, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds');
CREATE TABLE side_input(key bigint, value text, PRIMARY KEY (key));
INSERT INTO side_input SELECT i, 'v' || i FROM generate_series(0, 9999) i;
-- q0 pass-through
CREATE MATERIALIZED VIEW nexmark_q0 AS
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q1 currency conversion
CREATE MATERIALIZED VIEW nexmark_q1 AS
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;

-- q2 selection (every 123rd auction)
CREATE MATERIALIZED VIEW nexmark_q2 AS
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- q3 local item suggestion
CREATE MATERIALIZED VIEW nexmark_q3 AS
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR','ID','CA');

-- q4 average winning price per category
CREATE MATERIALIZED VIEW nexmark_q4 AS
SELECT category, avg(final) AS avg_final FROM (SELECT a.id, a.category, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) w GROUP BY category;

-- q5 hot items
CREATE MATERIALIZED VIEW nexmark_q5 AS
WITH c AS (SELECT auction, window_start, window_end, count(*) AS num FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') h GROUP BY auction, window_start, window_end) SELECT c.window_start, c.window_end, c.auction, c.num FROM c JOIN (SELECT window_start, max(num) AS maxn FROM c GROUP BY window_start) m ON c.window_start = m.window_start AND c.num = m.maxn;

-- q6 average selling price of each seller's last 10 closed auctions
CREATE MATERIALIZED VIEW nexmark_q6 AS
SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS avg10 FROM (SELECT a.id, a.seller, a.expires, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.seller, a.expires) w;

-- q7 highest bid per 10 s window (ties kept)
CREATE MATERIALIZED VIEW nexmark_q7 AS
WITH t AS (SELECT * FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') x) SELECT t.window_start, t.auction, t.bidder, t.price, t.date_time, t.extra FROM t JOIN (SELECT window_start, max(price) AS maxp FROM t GROUP BY window_start) m ON t.window_start = m.window_start AND t.price = m.maxp;

-- q8 new users who opened auctions in the same window
CREATE MATERIALIZED VIEW nexmark_q8 AS
SELECT p.id, p.name, p.window_start FROM (SELECT DISTINCT id, name, window_start FROM TUMBLE(person, date_time, INTERVAL '10 seconds') x) p JOIN (SELECT DISTINCT seller, window_start FROM TUMBLE(auction, date_time, INTERVAL '10 seconds') y) a ON p.id = a.seller AND p.window_start = a.window_start;

-- q9 winning bid
CREATE MATERIALIZED VIEW nexmark_q9 AS
SELECT id, item_name, seller, category, bidder, price, bid_time FROM (SELECT a.id, a.item_name, a.seller, a.category, b.bidder, b.price, b.date_time AS bid_time, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder, b.extra) AS rn FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) t WHERE rn <= 1;

-- q10 log to partitions
CREATE MATERIALIZED VIEW nexmark_q10 AS
SELECT auction, bidder, price, date_time, extra, to_char(date_time,'YYYY-MM-DD') AS dt, to_char(date_time,'HH24:MI') AS hm FROM bid;

-- q11 user sessions
CREATE MATERIALIZED VIEW nexmark_q11 AS
SELECT bidder, count(*) AS bid_count, window_start, window_end FROM SESSION(bid PARTITION BY bidder, date_time, INTERVAL '1 seconds') s GROUP BY bidder, window_start, window_end;

-- q12 processing-time windows (checked only for sum(bid_count) = number of bids)
CREATE MATERIALIZED VIEW nexmark_q12 AS
SELECT bidder, count(*) AS bid_count, window_start, window_end FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') x GROUP BY bidder, window_start, window_end;

-- q13 bounded side input
CREATE MATERIALIZED VIEW nexmark_q13 AS
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b JOIN side_input s ON b.auction % 10000 = s.key;

-- q14 calculation
CREATE MATERIALIZED VIEW nexmark_q14 AS
SELECT auction, bidder, 0.908 * price AS price, CASE WHEN extract(hour FROM date_time) BETWEEN 8 AND 18 THEN 'dayTime' WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type, date_time, extra, length(extra) - length(replace(extra,'c','')) AS c_counts FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15 bidding statistics
CREATE MATERIALIZED VIEW nexmark_q15 AS
SELECT to_char(date_time,'YYYY-MM-DD') AS day, count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids, count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, count(DISTINCT bidder) AS total_bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders, count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders, count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders, count(DISTINCT auction) AS total_auctions, count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions, count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions, count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions FROM bid GROUP BY to_char(date_time,'YYYY-MM-DD');

-- q16 channel statistics
CREATE MATERIALIZED VIEW nexmark_q16 AS
SELECT channel, to_char(date_time,'YYYY-MM-DD') AS day, max(to_char(date_time,'HH24:MI')) AS minute, count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids, count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, count(DISTINCT bidder) AS total_bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders, count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders, count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders, count(DISTINCT auction) AS total_auctions, count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions, count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions, count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions FROM bid GROUP BY channel, to_char(date_time,'YYYY-MM-DD');

-- q17 auction statistics
CREATE MATERIALIZED VIEW nexmark_q17 AS
SELECT auction, to_char(date_time,'YYYY-MM-DD') AS day, count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS r1, count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS r2, count(*) FILTER (WHERE price >= 1000000) AS r3, min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, to_char(date_time,'YYYY-MM-DD');

-- q18 last bid per bidder and auction
CREATE MATERIALIZED VIEW nexmark_q18 AS
SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC, extra) AS rn FROM bid) t WHERE rn <= 1;

-- q19 top 10 bids per auction
CREATE MATERIALIZED VIEW nexmark_q19 AS
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder, extra) AS rn FROM bid) t WHERE rn <= 10;

-- q20 expand bid with auction
CREATE MATERIALIZED VIEW nexmark_q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10;

-- q21 channel id
CREATE MATERIALIZED VIEW nexmark_q21 AS
SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE (regexp_match(url,'(&|^)channel_id=([^&]*)'))[2] END AS channel_id FROM bid WHERE (regexp_match(url,'(&|^)channel_id=([^&]*)'))[2] IS NOT NULL OR lower(channel) IN ('apple','google','facebook','baidu');

-- q22 url directories
CREATE MATERIALIZED VIEW nexmark_q22 AS
SELECT auction, bidder, price, channel, split_part(url,'/',4) AS dir1, split_part(url,'/',5) AS dir2, split_part(url,'/',6) AS dir3 FROM bid;
SELECT * FROM nexmark_q0;
SELECT * FROM nexmark_q1;
SELECT * FROM nexmark_q2;
SELECT * FROM nexmark_q3;
SELECT * FROM nexmark_q4;
SELECT * FROM nexmark_q5;
SELECT * FROM nexmark_q6;
SELECT * FROM nexmark_q7;
SELECT * FROM nexmark_q8;
SELECT * FROM nexmark_q9;
SELECT * FROM nexmark_q10;
SELECT * FROM nexmark_q11;
SELECT * FROM nexmark_q12;
SELECT * FROM nexmark_q13;
SELECT * FROM nexmark_q14;
SELECT * FROM nexmark_q15;
SELECT * FROM nexmark_q16;
SELECT * FROM nexmark_q17;
SELECT * FROM nexmark_q18;
SELECT * FROM nexmark_q19;
SELECT * FROM nexmark_q20;
SELECT * FROM nexmark_q21;
SELECT * FROM nexmark_q22;
