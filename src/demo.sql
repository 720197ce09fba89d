-- What `headwater demo` runs: a year of flights out of New York as a live stream, and views on it.
-- {path} and {rate} are filled in.

CREATE TABLE airlines (carrier text, name text, PRIMARY KEY (carrier));

CREATE TABLE airports (
  faa text, name text, lat double precision, lon double precision, alt integer, tz integer, dst text, tzone text,
  PRIMARY KEY (faa)
);

CREATE TABLE planes (
  tailnum text, year integer, type text, manufacturer text, model text, engines integer, seats integer, speed integer,
  engine text,
  PRIMARY KEY (tailnum)
);

CREATE TABLE weather (
  origin text, year integer, month integer, day integer, hour integer, temp double precision, dewp double precision,
  humid double precision, wind_dir integer, wind_speed double precision, wind_gust double precision,
  precip double precision, pressure double precision, visib double precision, time_hour timestamp,
  PRIMARY KEY (origin, time_hour)
);

-- A flight is an event at its scheduled departure. The file is in the order of actual departures, up to 22 hours
-- and 53 minutes off, hence a watermark that is a day behind.
CREATE STREAM flights (
  year integer, month integer, day integer, dep_time integer, sched_dep_time integer, dep_delay integer,
  arr_time integer, sched_arr_time integer, arr_delay integer, carrier text, flight integer, tailnum text,
  origin text, dest text, air_time integer, distance integer, hour integer, minute integer, time_hour timestamp,
  sched_dep timestamp AS (time_hour + minute * INTERVAL '1 minute'),
  WATERMARK FOR sched_dep AS sched_dep - INTERVAL '1 day'
) WITH (
  connector = 'file', path = '{path}', format = 'csv', compression = 'gzip', null = 'NA', rate = '{rate}'
);

-- How late each airline is.
CREATE MATERIALIZED VIEW carrier_delays AS
SELECT a.name AS airline,
       count(*) AS flights,
       count(*) FILTER (WHERE f.dep_time IS NULL) AS cancelled,
       round(avg(f.dep_delay), 1) AS departure_delay,
       round(avg(f.arr_delay), 1) AS arrival_delay,
       max(f.arr_delay) AS worst_arrival
FROM flights f
JOIN airlines a ON a.carrier = f.carrier
GROUP BY a.name;

-- Departures of each hour and airport.
CREATE MATERIALIZED VIEW hourly_departures AS
SELECT window_start, origin, count(*) AS scheduled, count(dep_time) AS departed
FROM TUMBLE(flights, sched_dep, INTERVAL '1 hour')
GROUP BY window_start, window_end, origin;

-- The delay of the last three hours, every half hour.
CREATE MATERIALIZED VIEW rolling_delays AS
SELECT window_start, window_end, origin,
       count(dep_delay) AS departed,
       round(avg(dep_delay), 1) AS departure_delay,
       max(dep_delay) AS worst_departure
FROM HOP(flights, sched_dep, INTERVAL '30 minutes', INTERVAL '3 hours')
GROUP BY window_start, window_end, origin;

-- One row a day, current while the day goes on.
CREATE MATERIALIZED VIEW daily_summary AS
SELECT window_start AS day,
       count(*) AS flights,
       count(*) FILTER (WHERE dep_time IS NULL) AS cancelled,
       round(avg(arr_delay), 1) AS arrival_delay
FROM TUMBLE(flights, sched_dep, INTERVAL '1 day')
GROUP BY window_start, window_end;

-- The ten routes on which one arrives latest.
CREATE MATERIALIZED VIEW worst_routes AS
SELECT f.origin, f.dest, p.name AS destination, count(f.arr_delay) AS arrived, round(avg(f.arr_delay), 1) AS arrival_delay
FROM flights f
LEFT JOIN airports p ON p.faa = f.dest
GROUP BY f.origin, f.dest, p.name
HAVING count(f.arr_delay) >= 50
ORDER BY avg(f.arr_delay) DESC, f.origin, f.dest
LIMIT 10;

-- Each flight with the weather of its hour.
CREATE MATERIALIZED VIEW flight_weather AS
SELECT f.sched_dep, f.carrier, f.flight, f.origin, f.dest, f.dep_delay, w.temp, w.wind_speed, w.precip, w.visib
FROM flights f
JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour;

-- What the weather does to departures: a view on a view.
CREATE MATERIALIZED VIEW weather_delays AS
SELECT CASE WHEN visib < 3 THEN 'low visibility'
            WHEN precip > 0 THEN 'rain or snow'
            WHEN wind_speed > 20 THEN 'wind'
            ELSE 'fair' END AS conditions,
       count(*) AS flights,
       count(*) FILTER (WHERE dep_delay IS NULL) AS cancelled,
       round(avg(dep_delay), 1) AS departure_delay
FROM flight_weather
GROUP BY 1;

-- The planes that flew most.
CREATE MATERIALIZED VIEW busiest_planes AS
SELECT f.tailnum, p.manufacturer, p.model, p.seats, count(f.air_time) AS flights, sum(f.distance) AS miles
FROM flights f
JOIN planes p ON p.tailnum = f.tailnum
WHERE f.air_time IS NOT NULL
GROUP BY f.tailnum, p.manufacturer, p.model, p.seats
ORDER BY count(f.air_time) DESC, f.tailnum
LIMIT 20;
