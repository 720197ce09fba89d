//! `connector = 'nexmark'`: the auction site of the Nexmark benchmark, made up as it is read.
//!
//! Of every 50 events one is a new person, three are new auctions and 46 are bids. Most bids go to a hot auction and
//! come from a hot bidder, most auctions are a hot seller's; half of the bids come through one of four channels. An
//! event is a pure function of the seed and its number, so its number is the position, the three tables of one seed
//! fit together, and any part of the sequence can be made on its own ([`events`]).
//!
//! Shapes and constants follow the published generators (ids from 1000, a hot id per 100).

mod source;

use super::{Connector, ConnectorOption, Role, schema_of};
use crate::catalog::Column;
use crate::delta::batch_of;
use crate::types::Type;
use arrow::array::{ArrayRef, Int64Array, StringBuilder, TimestampMicrosecondArray};
use arrow::record_batch::RecordBatch;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Its entry.
pub(super) const CONNECTOR: Connector = Connector {
    name: "nexmark",
    summary: "The persons, auctions and bids of the Nexmark benchmark, generated in the process: of every 50 events \
              1 person, 3 auctions, 46 bids. The same seed gives the same events.",
    options: OPTIONS,
    source: Some(source::open),
    sink: None,
};

const fn option(name: &'static str, default: Option<&'static str>, doc: &'static str) -> ConnectorOption {
    ConnectorOption {
        name,
        default,
        role: Some(Role::Source),
        doc,
    }
}

const OPTIONS: &[ConnectorOption] = &[
    option("table", None, "`person`, `auction` or `bid`"),
    option(
        "events",
        Some("(without end)"),
        "how many events there are, of all three kinds",
    ),
    option(
        "rate",
        Some("(as fast as they are taken)"),
        "events per second, of all three kinds",
    ),
    option("seed", Some("0"), "another seed gives other values"),
    option(
        "event_rate",
        Some("100000"),
        "how many events fall in a second of event time",
    ),
    option(
        "out_of_order",
        Some("1"),
        "events are shuffled within groups of so many, so that event time goes back and forth; not a multiple of 953",
    ),
];

const PERSONS: u64 = 1;
const AUCTIONS: u64 = 3;
const EVENTS_PER_ROUND: u64 = 50;
const FIRST_ID: u64 = 1000;
/// A stride that visits every place of a group once.
const SHUFFLE_STRIDE: u64 = 953;
/// 2015-07-15 00:00:00, in microseconds since 1970.
const BASE_MICROS: i64 = 1_436_918_400_000_000;
const MICROS_PER_SECOND: u64 = 1_000_000;
const CHANNELS: u64 = 10_000;
/// About how large a row is.
const ROW_BYTES: u64 = 300;
/// At most so many events are made at once.
const CHUNK_EVENTS: u64 = 16_384;

const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];
const LAST_NAMES: [&str; 9] = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// One of the three kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// People who sell and bid.
    Person,
    /// Things for sale.
    Auction,
    /// Offers.
    Bid,
}

/// What decides every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// How many events fall in a second of event time.
    pub event_rate: u64,
    /// Events are shuffled within groups of so many; 1 for none.
    pub out_of_order: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            event_rate: 100_000,
            out_of_order: 1,
        }
    }
}

/// The rows of some events, of each kind.
#[derive(Debug, Clone)]
pub struct Events {
    /// The persons.
    pub person: RecordBatch,
    /// The auctions.
    pub auction: RecordBatch,
    /// The bids.
    pub bid: RecordBatch,
}

/// What a column of one of the tables holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Content {
    PersonId,
    PersonName,
    Email,
    CreditCard,
    City,
    State,
    PersonExtra,
    AuctionId,
    ItemName,
    Description,
    InitialBid,
    Reserve,
    Expires,
    Seller,
    Category,
    AuctionExtra,
    BidAuction,
    Bidder,
    Price,
    Channel,
    Url,
    BidExtra,
    DateTime,
}

/// The name and content of each column.
const PERSON: &[(&str, Content)] = &[
    ("id", Content::PersonId),
    ("name", Content::PersonName),
    ("email_address", Content::Email),
    ("credit_card", Content::CreditCard),
    ("city", Content::City),
    ("state", Content::State),
    ("date_time", Content::DateTime),
    ("extra", Content::PersonExtra),
];
const AUCTION: &[(&str, Content)] = &[
    ("id", Content::AuctionId),
    ("item_name", Content::ItemName),
    ("description", Content::Description),
    ("initial_bid", Content::InitialBid),
    ("reserve", Content::Reserve),
    ("date_time", Content::DateTime),
    ("expires", Content::Expires),
    ("seller", Content::Seller),
    ("category", Content::Category),
    ("extra", Content::AuctionExtra),
];
const BID: &[(&str, Content)] = &[
    ("auction", Content::BidAuction),
    ("bidder", Content::Bidder),
    ("price", Content::Price),
    ("channel", Content::Channel),
    ("url", Content::Url),
    ("date_time", Content::DateTime),
    ("extra", Content::BidExtra),
];

impl Table {
    fn contents(self) -> &'static [(&'static str, Content)] {
        match self {
            Self::Person => PERSON,
            Self::Auction => AUCTION,
            Self::Bid => BID,
        }
    }

    /// Which table an event belongs to.
    fn of_event(event: u64) -> Self {
        match event % EVENTS_PER_ROUND {
            0..PERSONS => Self::Person,
            rest if rest < PERSONS + AUCTIONS => Self::Auction,
            _ => Self::Bid,
        }
    }

    /// The columns that it has, as a stream would declare them.
    pub fn columns(self) -> Vec<Column> {
        let column = |(name, content): &(&str, Content)| Column {
            name: (*name).to_owned(),
            kind: content.kind(),
            not_null: false,
            default: None,
            generated: None,
        };
        self.contents().iter().map(column).collect()
    }
}

impl Content {
    fn kind(self) -> Type {
        match self {
            Self::PersonId
            | Self::AuctionId
            | Self::InitialBid
            | Self::Reserve
            | Self::Seller
            | Self::Category
            | Self::BidAuction
            | Self::Bidder
            | Self::Price => Type::Int8,
            Self::DateTime | Self::Expires => Type::Timestamp(None),
            _ => Type::Text,
        }
    }
}

/// Random numbers of one event and purpose, from nothing but the seed.
struct Random(u64);

impl Random {
    fn new(seed: u64, event: u64, purpose: Content) -> Self {
        let purpose = (purpose as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let mut random =
            Self(seed.wrapping_mul(0xA24B_AED4_963E_E407) ^ event.wrapping_mul(0x9FB2_1C65_1E98_DF25) ^ purpose);
        random.next();
        random
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    /// Appends small letters, eight at a time: each byte of a random word, scaled from 256 to 26.
    fn letters(&mut self, count: usize, text: &mut Vec<u8>) {
        const EVEN: u64 = 0x00FF_00FF_00FF_00FF;
        let end = text.len() + count;
        while text.len() < end {
            let word = self.next();
            let low = (((word & EVEN) * 26) >> 8) & EVEN;
            let high = ((((word >> 8) & EVEN) * 26) >> 8) & EVEN;
            let letters = (low | (high << 8)) + 0x6161_6161_6161_6161;
            text.extend_from_slice(&letters.to_le_bytes());
        }
        text.truncate(end);
    }

    /// A price in cents: 10^(0..6) * 100, evenly over the exponent.
    fn price(&mut self) -> i64 {
        let random = self.next();
        let (step, within) = ((random >> 54) as usize, (random >> 38) as u16);
        let (low, high) = (PRICES[step], PRICES[step + 1]);
        (low + (high - low) * f64::from(within) / 65_536.0).round() as i64
    }
}

/// 1024 steps of the price curve; between them it is taken for straight.
static PRICES: LazyLock<Vec<f64>> = LazyLock::new(|| {
    (0..=1024)
        .map(|step| 10f64.powf(f64::from(step) * 6.0 / 1024.0) * 100.0)
        .collect()
});

/// The names and urls of the channels that are not hot.
static COLD_CHANNELS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let cold = |channel: u64| {
        let mut random = Random::new(0, channel, Content::Url);
        let mut path = Vec::new();
        for _ in 0..3 {
            random.letters(5, &mut path);
            path.push(b'/');
        }
        let path = String::from_utf8_lossy(&path);
        let mut url = format!("https://www.nexmark.com/{path}item.htm?query=1");
        if random.below(10) != 0 {
            let id = (channel as u32).reverse_bits() % (1 << 31);
            url.push_str(&format!("&channel_id={id}"));
        }
        (format!("channel-{channel}"), url)
    };
    (0..CHANNELS).map(cold).collect()
});

static HOT_URLS: LazyLock<Vec<String>> = LazyLock::new(|| {
    (0..HOT_CHANNELS.len())
        .map(|index| format!("https://www.nexmark.com/h{index}/aa/bb/item.htm?query=1"))
        .collect()
});

/// The number of the last person as of an event, from 0.
fn last_person(event: u64) -> u64 {
    const { assert!(PERSONS == 1, "a round begins with its only person") };
    event / EVENTS_PER_ROUND
}

/// The number of the last auction as of an event, from 0. Before the first one there is only the one to come.
fn last_auction(event: u64) -> u64 {
    let (round, place) = (event / EVENTS_PER_ROUND, event % EVENTS_PER_ROUND);
    if place < PERSONS {
        return (round * AUCTIONS).saturating_sub(1);
    }
    round * AUCTIONS + (place - PERSONS).min(AUCTIONS - 1)
}

/// One of the last 1000 persons, or of the next ten.
fn some_person(event: u64, random: &mut Random) -> u64 {
    let known = last_person(event) + 1;
    let active = known.min(1000);
    known - active + random.below(active + 10)
}

/// One of the last 100 auctions, or of the next ten.
fn some_auction(event: u64, random: &mut Random) -> u64 {
    let last = last_auction(event);
    let least = last.saturating_sub(100);
    least + random.below(last - least + 1 + 10)
}

/// The channel of a bid: `Ok` one of the hot ones, `Err` one of the others.
fn channel_of(seed: u64, event: u64) -> Result<usize, usize> {
    let mut random = Random::new(seed, event, Content::Channel);
    if random.below(2) > 0 {
        Ok(random.below(HOT_CHANNELS.len() as u64) as usize)
    } else {
        Err(random.below(CHANNELS) as usize)
    }
}

impl Settings {
    /// The event at a place of the sequence.
    fn event_at(&self, place: u64) -> u64 {
        let group = self.out_of_order;
        place / group * group + (place % group) * SHUFFLE_STRIDE % group
    }

    /// The events of one table among those at some places.
    fn events_of(&self, table: Table, places: Range<u64>) -> Vec<u64> {
        let mut events = Vec::with_capacity(((places.end - places.start) as usize).min(CHUNK_EVENTS as usize));
        events.extend(
            places
                .map(|place| self.event_at(place))
                .filter(|event| Table::of_event(*event) == table),
        );
        events
    }

    fn micros(&self, event: u64) -> i64 {
        let since = u128::from(event) * u128::from(MICROS_PER_SECOND) / u128::from(self.event_rate);
        BASE_MICROS + since as i64
    }

    /// How long an auction can last at most, in milliseconds: about as long as 100 auctions take to appear, twice.
    fn auction_millis_max(&self) -> u64 {
        (100 * EVENTS_PER_ROUND / AUCTIONS * 1000 * 2 / self.event_rate).max(1)
    }

    fn column(&self, content: Content, events: &[u64]) -> ArrayRef {
        match content.kind() {
            Type::Int8 => Arc::new(Int64Array::from_iter_values(
                events.iter().map(|event| self.number(content, *event)),
            )),
            Type::Timestamp(_) => {
                let micros = events.iter().map(|event| match content {
                    Content::Expires => {
                        let millis = 1 + Random::new(self.seed, *event, content).below(self.auction_millis_max());
                        self.micros(*event) + millis as i64 * 1000
                    }
                    _ => self.micros(*event),
                });
                Arc::new(TimestampMicrosecondArray::from_iter_values(micros))
            }
            _ => self.texts(content, events),
        }
    }

    fn number(&self, content: Content, event: u64) -> i64 {
        let mut random = Random::new(self.seed, event, content);
        let id = |number: u64| (FIRST_ID + number) as i64;
        match content {
            Content::PersonId => id(last_person(event)),
            Content::AuctionId => id(last_auction(event)),
            Content::InitialBid => random.price(),
            Content::Reserve => self.number(Content::InitialBid, event) + random.price(),
            Content::Seller if random.below(4) > 0 => id(last_person(event) / 100 * 100),
            Content::Seller => id(some_person(event, &mut random)),
            Content::Category => 10 + random.below(5) as i64,
            Content::BidAuction if random.below(2) > 0 => id(last_auction(event) / 100 * 100),
            Content::BidAuction => id(some_auction(event, &mut random)),
            Content::Bidder if random.below(4) > 0 => id(last_person(event) / 100 * 100 + 1),
            Content::Bidder => id(some_person(event, &mut random)),
            _ => random.price(),
        }
    }

    fn texts(&self, content: Content, events: &[u64]) -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(events.len(), events.len() * 64);
        let mut text = Vec::with_capacity(256);
        for event in events {
            match content {
                Content::Channel => match channel_of(self.seed, *event) {
                    Ok(hot) => builder.append_value(HOT_CHANNELS[hot]),
                    Err(cold) => builder.append_value(&COLD_CHANNELS[cold].0),
                },
                Content::Url => match channel_of(self.seed, *event) {
                    Ok(hot) => builder.append_value(&HOT_URLS[hot]),
                    Err(cold) => builder.append_value(&COLD_CHANNELS[cold].1),
                },
                Content::City => builder.append_value(Random::new(self.seed, *event, content).pick(&CITIES)),
                Content::State => builder.append_value(Random::new(self.seed, *event, content).pick(&STATES)),
                _ => {
                    text.clear();
                    self.write_text(content, *event, &mut text);
                    builder.append_value(std::str::from_utf8(&text).expect("the text is made of ASCII"));
                }
            }
        }
        Arc::new(builder.finish())
    }

    fn write_text(&self, content: Content, event: u64, text: &mut Vec<u8>) {
        let mut random = Random::new(self.seed, event, content);
        match content {
            Content::PersonName => {
                text.extend_from_slice(random.pick(&FIRST_NAMES).as_bytes());
                text.push(b' ');
                text.extend_from_slice(random.pick(&LAST_NAMES).as_bytes());
            }
            Content::Email => {
                random.letters(6, text);
                text.push(b'@');
                random.letters(4, text);
                text.extend_from_slice(b".com");
            }
            Content::CreditCard => {
                for group in 0..4 {
                    if group > 0 {
                        text.push(b' ');
                    }
                    text.extend_from_slice(format!("{:04}", random.below(10_000)).as_bytes());
                }
            }
            Content::ItemName => random.letters(12, text),
            Content::Description => random.letters(50, text),
            Content::PersonExtra => random.letters(120, text),
            Content::AuctionExtra => random.letters(200, text),
            _ => random.letters(60, text),
        }
    }

    /// The rows of one table among the events at some places, in the whole table's columns.
    pub fn rows(&self, table: Table, places: Range<u64>) -> RecordBatch {
        let events = self.events_of(table, places);
        let columns = table.columns();
        let schema = schema_of(&columns.iter().collect::<Vec<_>>());
        let arrays = table
            .contents()
            .iter()
            .map(|(_, content)| self.column(*content, &events))
            .collect();
        batch_of(schema, arrays, events.len()).expect("the columns are made for the schema")
    }
}

/// The events at some places of the sequence.
pub fn events(settings: &Settings, places: Range<u64>) -> Events {
    Events {
        person: settings.rows(Table::Person, places.clone()),
        auction: settings.rows(Table::Auction, places.clone()),
        bid: settings.rows(Table::Bid, places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::{Budget, Position, SourceRequest, SourceState, open_source};
    use arrow::array::AsArray;
    use arrow::compute::concat_batches;
    use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
    use std::collections::{BTreeMap, HashMap};

    fn options(table: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut options = BTreeMap::from([
            ("connector".to_owned(), "nexmark".to_owned()),
            ("table".to_owned(), table.to_owned()),
        ]);
        options.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        options
    }

    fn read(table: Table, options: &BTreeMap<String, String>, rows_max: usize, restarts: bool) -> RecordBatch {
        let columns = table.columns();
        let open = |position: Option<&Position>| {
            open_source(&SourceRequest {
                options,
                columns: &columns,
                position,
                projection: None,
            })
            .unwrap()
        };
        let mut source = open(None);
        let mut batches = Vec::new();
        loop {
            let polled = source
                .poll(Budget {
                    rows_max,
                    bytes_max: 1 << 30,
                })
                .unwrap();
            assert!(polled.delta.len() <= rows_max);
            batches.extend(polled.delta.batches.into_iter().map(|batch| batch.rows));
            if polled.state == SourceState::Finished {
                return concat_batches(&schema_of(&columns.iter().collect::<Vec<_>>()), &batches).unwrap();
            }
            if restarts {
                source = open(Some(&source.position()));
            }
        }
    }

    #[test]
    fn polls_and_restarts_do_not_show() {
        let settings = Settings {
            seed: 7,
            out_of_order: 100,
            ..Settings::default()
        };
        let whole = events(&settings, 0..1000);
        assert_eq!(
            (whole.person.num_rows(), whole.auction.num_rows(), whole.bid.num_rows()),
            (20, 60, 920)
        );
        for (table, name, rows) in [
            (Table::Person, "person", whole.person),
            (Table::Auction, "auction", whole.auction),
            (Table::Bid, "bid", whole.bid),
        ] {
            let options = options(name, &[("events", "1000"), ("seed", "7"), ("out_of_order", "100")]);
            assert_eq!(read(table, &options, 1 << 20, false), rows);
            assert_eq!(read(table, &options, 1, true), rows);
            assert_eq!(read(table, &options, 17, true), rows);
        }
    }

    #[test]
    fn seeds_differ_and_times_step() {
        let one = events(&Settings::default(), 0..100_000);
        let two = events(
            &Settings {
                seed: 1,
                ..Settings::default()
            },
            0..100_000,
        );
        assert_ne!(one.bid.column(2), two.bid.column(2));
        let times = one.bid.column(5).as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.value(0), BASE_MICROS + 40);
        assert!(times.values().windows(2).all(|pair| pair[0] < pair[1]));
        let shuffled = events(
            &Settings {
                out_of_order: 1000,
                ..Settings::default()
            },
            0..100_000,
        );
        let mut shuffled = shuffled
            .bid
            .column(5)
            .as_primitive::<TimestampMicrosecondType>()
            .values()
            .to_vec();
        assert!(shuffled.windows(2).any(|pair| pair[0] > pair[1]));
        shuffled.sort_unstable();
        assert_eq!(shuffled, times.values().to_vec());
    }

    #[test]
    fn values_have_the_published_shapes() {
        let Events { person, auction, bid } = events(&Settings::default(), 0..500_000);
        let ids = person.column(0).as_primitive::<Int64Type>();
        assert_eq!((ids.value(0), ids.value(9_999)), (1000, 10_999));
        let ids = auction.column(0).as_primitive::<Int64Type>();
        assert_eq!((ids.value(0), ids.value(29_999)), (1000, 30_999));

        let hot = |array: &ArrayRef, of: fn(i64) -> bool| {
            let values = array.as_primitive::<Int64Type>().values();
            values.iter().filter(|value| of(**value)).count() as f64 / values.len() as f64
        };
        assert!((0.49..0.52).contains(&hot(bid.column(0), |auction| auction % 100 == 0)));
        assert!((0.74..0.77).contains(&hot(bid.column(1), |bidder| bidder % 100 == 1)));
        assert!((0.74..0.77).contains(&hot(auction.column(7), |seller| seller % 100 == 0)));
        assert!((0.49..0.51).contains(&hot(bid.column(2), |price| price < 100_000)));
        assert_eq!(hot(bid.column(2), |price| (100..=100_000_000).contains(&price)), 1.0);
        assert_eq!(hot(auction.column(8), |category| (10..15).contains(&category)), 1.0);

        let mut channels: HashMap<&str, usize> = HashMap::new();
        for channel in bid.column(3).as_string::<i32>().iter().flatten() {
            *channels.entry(channel).or_default() += 1;
        }
        assert!((57_000..58_500).contains(&channels["Google"]) && channels.len() > 9_000);
        let url = bid.column(4).as_string::<i32>();
        for row in 0..1000 {
            let is_hot = HOT_CHANNELS.contains(&bid.column(3).as_string::<i32>().value(row));
            assert_eq!(url.value(row).contains("/aa/bb/"), is_hot);
            assert!(
                url.value(row).starts_with("https://www.nexmark.com/") && url.value(row).contains("/item.htm?query=1")
            );
        }
        let (initial, reserve) = (
            auction.column(3).as_primitive::<Int64Type>(),
            auction.column(4).as_primitive::<Int64Type>(),
        );
        assert!((0..30_000).all(|row| reserve.value(row) > initial.value(row)));
        let (begin, expires) = (
            auction.column(5).as_primitive::<TimestampMicrosecondType>(),
            auction.column(6).as_primitive::<TimestampMicrosecondType>(),
        );
        assert!((0..30_000).all(|row| (1000..=33_000).contains(&(expires.value(row) - begin.value(row)))));
        let letters = bid.column(6).as_string::<i32>().value(0);
        assert!(letters.len() == 60 && letters.bytes().all(|byte| byte.is_ascii_lowercase()));
    }

    #[test]
    fn declared_columns_are_checked() {
        let options = options("bid", &[]);
        let mut columns = Table::Bid.columns();
        columns.reverse();
        columns.truncate(2);
        let open = |columns: &[Column]| {
            open_source(&SourceRequest {
                options: &options,
                columns,
                position: None,
                projection: None,
            })
        };
        let polled = open(&columns)
            .unwrap()
            .poll(Budget {
                rows_max: 10,
                bytes_max: 1 << 20,
            })
            .unwrap();
        assert_eq!(polled.delta.batches[0].rows.schema().field(0).name(), "extra");
        columns[0].name = "x".to_owned();
        let error = open(&columns).err().unwrap();
        assert_eq!(error.code(), "42703");
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("auction bigint, bidder bigint"))
        );
        columns[0] = Column {
            kind: Type::Int4,
            ..Table::Bid.columns().remove(0)
        };
        assert_eq!(open(&columns).err().unwrap().code(), "42804");
    }

    #[test]
    fn a_batch_of_no_event_is_empty() {
        let none = events(&Settings::default(), 5..5);
        assert_eq!(
            none.bid.num_rows() + none.person.num_rows() + none.auction.num_rows(),
            0
        );
    }
}
